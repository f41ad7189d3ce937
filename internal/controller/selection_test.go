package controller

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// TestIndexOfSelectionsAnswersAsIfAllWereAsked changes owners at random, and
// holds the index against asking each of them.
func TestIndexOfSelectionsAnswersAsIfAllWereAsked(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 0))
	texts := []string{
		"", "app=a", "app=b", "app=a,tier=x", "tier in (x)", "tier in (x,y)", "app!=a", "tier", "!tier",
		"app=a,app=b", "app in (a,b),tier=y", "track notin (canary),app=a", "app=,tier=x",
	}
	some := func(values ...string) string { return values[r.IntN(len(values))] }
	x, all := newSelectors(), map[string]labels.Selector{}
	found := 0
	for range 3000 {
		namespace := some("one", "two")
		key := namespace + "/" + fmt.Sprint(r.IntN(20))
		if r.IntN(3) == 0 {
			delete(all, key)
			x.set(namespace, key, nil)
		} else {
			sel, err := labels.Parse(texts[r.IntN(len(texts))])
			if err != nil {
				t.Fatal(err)
			}
			all[key] = sel
			x.set(namespace, key, sel)
		}
		set := labels.Set{}
		for key, values := range map[string][]string{"app": {"a", "b", ""}, "tier": {"x", "y"}, "track": {"canary"}} {
			if r.IntN(3) > 0 {
				set[key] = some(values...)
			}
		}
		var want []string
		for key, sel := range all {
			if strings.HasPrefix(key, namespace+"/") && sel.Matches(set) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		found += len(want)
		if got := x.matching(namespace, set); !slices.Equal(got, want) {
			t.Fatalf("seed %d: %s of %v select %v: got %q, want %q", seed, namespace, all, set, got, want)
		}
	}
	if found < 1000 {
		t.Errorf("seed %d: %d matches were tried, want many", seed, found)
	}
	for key := range all {
		namespace, _, _ := strings.Cut(key, "/")
		x.set(namespace, key, nil)
	}
	if len(x.mu.spaces) != 0 {
		t.Errorf("seed %d: got %v left when no owner is, want nothing", seed, x.mu.spaces)
	}
}

// TestIndexOfASelectionIsAheadOfItsOwnersKeys holds that who is told of an owner
// finds it in the index, for all who share one, until nobody uses it.
func TestIndexOfASelectionIsAheadOfItsOwnersKeys(t *testing.T) {
	g := task.NewGroup(t.Context())
	defer func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	service := func(rev int64, name, app string) *cache.Item {
		return &cache.Item{Key: cache.Key("default", name), Rev: rev, Object: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: fmt.Sprint(rev)},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": app}},
		}}
	}
	s := NewSelection(core.Services, func(svc *corev1.Service) labels.Selector { return labels.SelectorFromSet(svc.Spec.Selector) })
	owners := cache.New(core.Services.Def, &cache.Progress{})
	owners.Replace([]*cache.Item{service(1, "old", "a")}, 1)
	h := newHub(g, slog.New(slog.DiscardHandler))
	var leave []func()
	told := make(chan string)
	for range 2 {
		kept := h.keep(s, owners)
		_, left := h.join(owners, func(d cache.Delta, _ bool) {
			app := d.Last().Object.(*corev1.Service).Spec.Selector["app"]
			told <- fmt.Sprint(h.selectors(s, owners).matching("default", labels.Set{"app": app}))
		})
		leave = append(leave, kept, left)
	}
	tells := func(want string) {
		t.Helper()
		for range 2 {
			if got := <-told; got != want {
				t.Errorf("got %s when an owner's change was told, want %s", got, want)
			}
		}
	}
	tells("[default/old]")
	owners.Apply([]cache.Change{{Item: service(2, "new", "a")}})
	tells("[default/new default/old]")
	owners.Apply([]cache.Change{{Item: service(3, "new", "b")}})
	tells("[default/new]")
	owners.Apply([]cache.Change{{Item: service(4, "new", "b"), Delete: true}})
	tells("[]")
	for _, f := range leave {
		f()
	}
	if len(h.mu.selections)+len(h.mu.feeds) != 0 || h.selectors(s, owners) != nil {
		t.Errorf("got %v and %v when nobody is left, want nothing", h.mu.selections, h.mu.feeds)
	}
}
