package garbagecollector_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/trace"
)

// graph is the model: each object with its owners.
type graph map[string][]string

// drop removes an object as the documents say: with orphan its dependents forget
// it; else those that have no owner left go too.
func (g graph) drop(name string, orphan bool) {
	if _, ok := g[name]; !ok {
		return
	}
	delete(g, name)
	for dep, owners := range g {
		if !slices.Contains(owners, name) {
			continue
		}
		g[dep] = slices.DeleteFunc(owners, func(o string) bool { return o == name })
		if len(g[dep]) == 0 && !orphan {
			g.drop(dep, false)
		}
	}
}

func (g graph) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(g)) {
		fmt.Fprintf(&b, "%s%v ", name, slices.Sorted(slices.Values(g[name])))
	}
	return b.String()
}

// TestWhatIsLeftIsWhatTheReferencesSay builds random webs of owners, circles
// among them, and deletes parts of them with every policy, while the control plane is
// killed again and again. KEMUDI_SEED plays one seed again.
func TestWhatIsLeftIsWhatTheReferencesSay(t *testing.T) {
	sim.Lives(t, 12, playGraph)
}

func playGraph(l *sim.Life) {
	t, rng, plane := l.T, l.Rng, l.Plane
	gone, kept := 0, 0
	for round := range 6 {
		api := client.For(plane.Admin(), core.Secrets)
		model := plant(l, api, round)
		planted := len(model)
		before := model.String()
		var done []string
		for range 1 + rng.IntN(4) {
			names := slices.Sorted(maps.Keys(model))
			if len(names) == 0 {
				break
			}
			name := names[rng.IntN(len(names))]
			policy := []metav1.DeletionPropagation{
				metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
			}[rng.IntN(3)]
			if err := api.Delete(t.Context(), "default", name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatalf("%s: delete %s: %v", before, name, err)
			}
			model.drop(name, policy == metav1.DeletePropagationOrphan)
			done = append(done, string(policy)+" "+name)
			for range rng.IntN(2) { // in the middle of its writes
				l.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
				plane.Kill()
			}
			api = client.For(plane.Admin(), core.Secrets)
			l.Sleep(10 * time.Minute)
		}
		left := graph{}
		items, err := api.List(t.Context(), "default", metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range items {
			owners := []string{}
			for _, ref := range s.OwnerReferences {
				owners = append(owners, ref.Name)
			}
			if strings.HasPrefix(s.Name, "g") {
				left[s.Name] = owners
			}
		}
		trace.Proves(t, "GC-001", "GC-004", "GC-009", "GC-015")
		if left.String() != model.String() {
			t.Errorf("%s: after %q got left %s, want %s", before, done, left, model)
		}
		gone, kept = gone+planted-len(left), kept+len(left)
		for name := range left {
			if err := api.Delete(t.Context(), "default", name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)}); err != nil {
				t.Error(err)
			}
		}
		l.Sleep(10 * time.Minute)
	}
	if gone == 0 || kept == 0 {
		t.Errorf("%d objects went and %d stayed, want some of both", gone, kept)
	}
}

// plant makes secrets and gives each up to three owners among them.
func plant(l *sim.Life, api client.Client[*corev1.Secret], round int) graph {
	t, rng := l.T, l.Rng
	t.Helper()
	model := graph{}
	var made []*corev1.Secret
	for i := range 3 + rng.IntN(8) {
		s, err := api.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("g%d-%d", round, i)}})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, s)
		model[s.Name] = nil
	}
	for _, s := range made {
		var refs []string
		for _, at := range rng.Perm(len(made))[:rng.IntN(min(4, len(made)))] {
			owner := made[at]
			if owner.Name == s.Name {
				continue
			}
			model[s.Name] = append(model[s.Name], owner.Name)
			refs = append(refs, fmt.Sprintf(`{"apiVersion":"v1","kind":"Secret","name":%q,"uid":%q,"blockOwnerDeletion":%t}`, owner.Name, owner.UID, rng.IntN(2) == 0))
		}
		patch := client.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"metadata":{"ownerReferences":[%s]}}`, strings.Join(refs, ","))}
		if _, err := api.Patch(t.Context(), "default", s.Name, "", patch); err != nil {
			t.Fatal(err)
		}
	}
	l.Sleep(time.Minute)
	return model
}
