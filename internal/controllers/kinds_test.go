package controllers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/disruption"
	"github.com/kemudi/kemudi/internal/controllers/garbagecollector"
	"github.com/kemudi/kemudi/internal/controllers/namespace"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
)

// nobody leads.
type nobody struct{}

func (nobody) Lead(ctx context.Context, _ func(context.Context) error) error {
	<-ctx.Done()
	return nil
}

// someKinds are set by the test.
type someKinds struct {
	mu      sync.Mutex
	defs    []*resource.Def
	changed chan struct{}
}

func (s *someKinds) Defs() ([]*resource.Def, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.defs, s.changed
}

func (s *someKinds) set(defs []*resource.Def) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
	}
	s.defs, s.changed = defs, make(chan struct{})
}

// kindsBed runs the controllers of all kinds over a set that changes.
type kindsBed struct {
	*testing.T
	secrets client.Client[*corev1.Secret]
	maps    client.Client[*corev1.ConfigMap]
}

// secret and configMap make objects, with an owner unless that is nil.
func (b *kindsBed) secret(name string, owner *metav1.OwnerReference) *corev1.Secret {
	b.Helper()
	s, err := b.secrets.Create(b.Context(), &corev1.Secret{ObjectMeta: owned("default", name, owner)})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *kindsBed) configMap(namespace, name string, owner *metav1.OwnerReference) {
	b.Helper()
	if _, err := b.maps.Create(b.Context(), &corev1.ConfigMap{ObjectMeta: owned(namespace, name, owner)}); err != nil {
		b.Fatal(err)
	}
}

func owned(namespace, name string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if owner != nil {
		meta.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return meta
}

// orphaned makes a config map whose owner, a secret, is gone.
func (b *kindsBed) orphaned(name string) {
	b.Helper()
	owner := b.secret("owner-of-"+name, nil)
	b.configMap("default", name, &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID})
	if err := b.secrets.Delete(b.Context(), "default", owner.Name, metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// expect says which of the objects that a test made are there after a while.
func (b *kindsBed) expect(step string, want ...string) {
	b.Helper()
	time.Sleep(10 * time.Minute)
	var got []string
	maps, err := b.maps.List(b.Context(), "", metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, cm := range maps {
		if cm.Namespace == "default" || cm.Namespace == "goes" {
			got = append(got, "configmap "+cm.Name)
		}
	}
	secrets, err := b.secrets.List(b.Context(), "default", metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range secrets {
		got = append(got, "secret "+s.Name)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		b.Errorf("%s: got %q, want %q", step, got, want)
	}
}

func TestKindsMayComeAndGoWhileControllersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := sim.Plane(t, plane.Options{Leadership: nobody{}})
		b := &kindsBed{T: t, secrets: client.For(plane.Admin(), core.Secrets), maps: client.For(plane.Admin(), core.ConfigMaps)}
		without := slices.DeleteFunc(slices.Clone(plane.Defs()), func(def *resource.Def) bool { return def == core.ConfigMaps.Def })
		kinds := &someKinds{}
		kinds.set(without)
		g := task.NewGroup(t.Context())
		g.Go("controllers", func(ctx context.Context) error {
			all := []*controller.Controller{garbagecollector.New(kinds), namespace.New(kinds, nil)}
			return controller.RunAll(ctx, all, controller.Env{
				As: func(string) client.Transport { return plane.Admin() }, Logger: slog.New(slog.DiscardHandler),
			})
		})
		b.orphaned("early")
		b.secret("waits", &metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "never", UID: types.UID("was")})
		b.expect("config maps are not known", "configmap early", "secret waits")
		before := sim.Goroutines(t)

		kinds.set(plane.Defs())
		b.expect("config maps come: theirs, and what they owned, are looked at")
		b.orphaned("later")
		b.expect("config maps are followed")
		namespaces := client.For(plane.Admin(), core.Namespaces)
		if _, err := namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}); err != nil {
			t.Fatal(err)
		}
		b.configMap("goes", "content", nil)
		b.expect("a config map in another namespace", "configmap content")
		if err := namespaces.Delete(t.Context(), "", "goes", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		b.expect("a namespace is emptied of them")

		kinds.set(without)
		b.orphaned("late")
		b.expect("config maps go: nobody looks at them", "configmap late")
		if after := sim.Goroutines(t); after != before {
			t.Errorf("got %d goroutines after the kind came and went, want the %d from before", after, before)
		}
		for range 10 {
			kinds.set(plane.Defs())
			kinds.set(without)
		}
		kinds.set(plane.Defs())
		b.expect("config maps are back after some to and fro")
		g.Cancel(fmt.Errorf("the test ends"))
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestBudgetsCountOwnersOfKindsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plane := sim.Plane(t, plane.Options{Leadership: nobody{}, Plugins: plane.Plugins{Disable: []string{"ServiceAccount"}}})
		without := slices.DeleteFunc(slices.Clone(plane.Defs()), func(def *resource.Def) bool { return def == core.ReplicationControllers.Def })
		kinds := &someKinds{}
		kinds.set(without)
		g := task.NewGroup(t.Context())
		g.Go("controllers", func(ctx context.Context) error {
			return controller.RunAll(ctx, []*controller.Controller{disruption.New(kinds)}, controller.Env{
				As: func(string) client.Transport { return plane.Admin() }, Logger: slog.New(slog.DiscardHandler),
			})
		})
		defer func() {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}()
		rc, err := client.For(plane.Admin(), core.ReplicationControllers).Create(t.Context(), &corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
			Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(3)), Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "db"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		meta := owned("default", "p", metav1.NewControllerRef(rc, core.ReplicationControllers.GVK()))
		meta.Labels = map[string]string{"app": "db"}
		if _, err := client.For(plane.Admin(), core.Pods).Create(t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}}); err != nil {
			t.Fatal(err)
		}
		budgets := client.For(plane.Admin(), policy.PodDisruptionBudgets)
		if _, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
			},
		}); err != nil {
			t.Fatal(err)
		}
		expect := func(step string, expected int32, message string) {
			t.Helper()
			time.Sleep(time.Minute)
			b, err := budgets.Get(t.Context(), "default", "b")
			if err != nil {
				t.Fatal(err)
			}
			if b.Status.ExpectedPods != expected || len(b.Status.Conditions) != 1 || b.Status.Conditions[0].Message != message {
				t.Errorf("%s: got %+v, want %d pods, message %q", step, b.Status, expected, message)
			}
		}
		expect("the kind of the owner is not known", 0, `no matches for kind "ReplicationController" in version "v1"`)
		kinds.set(plane.Defs())
		expect("it comes", 3, "")
	})
}
