package controller_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/trace"
)

// claiming is a controller that only claims pods, and tells which it has.
func claiming(got func([]string, error)) *controller.Controller {
	return controller.New(controller.Spec[*appsv1.ReplicaSet]{
		Name: "test-controller", For: apps.ReplicaSets,
		Watches: []controller.Watch{
			controller.Owned(core.Pods.Def, "ReplicaSet"),
			controller.Adopters(core.Pods, apps.ReplicaSets, func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector }),
		},
		Writes: []controller.Permission{controller.Patch(core.Pods.Def, "")},
		Setup: func(k *controller.Kit) controller.Reconciler[*appsv1.ReplicaSet] {
			return claimer{pods: controller.For(k, core.Pods), sets: controller.For(k, apps.ReplicaSets), got: got}
		},
	})
}

type claimer struct {
	pods controller.Client[*corev1.Pod]
	sets controller.Client[*appsv1.ReplicaSet]
	got  func([]string, error)
}

func (c claimer) Reconcile(ctx context.Context, rs *appsv1.ReplicaSet) (controller.Next, error) {
	sel, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return controller.Done, err
	}
	pods, err := controller.Claimer[*corev1.Pod, *appsv1.ReplicaSet]{Children: c.pods, Owners: c.sets}.Claim(ctx, rs, sel)
	var names []string
	for _, p := range pods {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	c.got(names, err)
	return controller.Done, err
}

func (b *bed) pod(name string, labels map[string]string, owners ...metav1.OwnerReference) *corev1.Pod {
	b.t.Helper()
	pod, err := client.For(b.as("test"), core.Pods).Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels, OwnerReferences: owners},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

func (b *bed) owners(name string) []metav1.OwnerReference {
	b.t.Helper()
	pod, err := client.For(b.as("test"), core.Pods).Get(b.t.Context(), "default", name)
	if err != nil {
		b.t.Fatal(err)
	}
	return pod.OwnerReferences
}

func set(name string, labels map[string]string) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			},
		},
	}
}

func TestClaimTakesWhatNobodyControlsAndLetsGoWhatDoesNotMatch(t *testing.T) {
	trace.Proves(t, "RS-006", "RS-007", "RS-008")
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		web := map[string]string{"app": "web"}
		config := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "note", UID: "0"}
		b.pod("bare", web)
		b.pod("owned", web, config)
		b.pod("controlled", web, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "x", UID: "2", Controller: new(true)})
		b.pod("different", map[string]string{"app": "db"})
		var seen log
		b.run(claiming(func(names []string, err error) { seen.add("%v %v", names, err) }))
		rs, err := client.For(b.as("test"), apps.ReplicaSets).Create(t.Context(), set("web", web))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := seen.taken(); len(got) == 0 || got[0] != "[bare owned] <nil>" {
			t.Errorf("got %q, want bare and owned claimed at once", got)
		}
		ref := *controller.ControllerRef(rs, apps.ReplicaSets.Def)
		if !*ref.BlockOwnerDeletion || !*ref.Controller || ref.Kind != "ReplicaSet" || ref.APIVersion != "apps/v1" {
			t.Errorf("got reference %+v", ref)
		}
		uids := func(refs []metav1.OwnerReference) (out []types.UID) {
			for _, r := range refs {
				out = append(out, r.UID)
			}
			slices.Sort(out)
			return out
		}
		if got, want := b.owners("owned"), []types.UID{config.UID, rs.UID}; !slices.Equal(uids(got), want) {
			t.Errorf("got owners %v, want the set beside the one that was there", got)
		}
		// It stops to match, and is let go; its other owner stays.
		_, err = client.For(b.as("test"), core.Pods).Patch(t.Context(), "default", "owned", "",
			client.Patch{Type: "application/merge-patch+json", Data: []byte(`{"metadata":{"labels":{"app":"other"}}}`)})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := b.owners("owned"); len(got) != 1 || got[0] != config {
			t.Errorf("got owners %v, want only the one that is not the set", got)
		}
		// A pod that comes later is seen too.
		seen.taken()
		b.pod("late", web)
		synctest.Wait()
		if got := seen.taken(); len(got) == 0 || got[0] != "[bare late] <nil>" {
			t.Errorf("got %q, want late claimed too", got)
		}
	})
}

func TestOwnerThatIsGoneAdoptsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		web := map[string]string{"app": "web"}
		sets := client.For(b.as("test"), apps.ReplicaSets)
		old, err := sets.Create(t.Context(), set("web", web))
		if err != nil {
			t.Fatal(err)
		}
		b.pod("bare", web)
		synctest.Wait()
		// The cache does not show that the set was replaced by another of its name.
		b.store.lag.Store(int64(10 * time.Second))
		if err := sets.Delete(t.Context(), "default", "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		replaced, err := sets.Create(t.Context(), set("web", map[string]string{"app": "db"}))
		if err != nil {
			t.Fatal(err)
		}
		var seen log
		b.run(claiming(func(names []string, err error) { seen.add("%v conflict=%v", names, apierrors.IsConflict(err)) }))
		synctest.Wait()
		time.Sleep(time.Minute)
		if got := b.owners("bare"); len(got) != 0 {
			t.Errorf("got owners %v (old %s, new %s), want none: the set is gone", got, old.UID, replaced.UID)
		}
		for _, line := range seen.taken() {
			if line != "[] conflict=true" && line != "[] conflict=false" {
				t.Errorf("got %s, want nothing claimed", line)
			}
		}
	})
}
