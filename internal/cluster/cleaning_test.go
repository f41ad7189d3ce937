package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controllers"
	"github.com/kemudi/kemudi/internal/controllers/podgc"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/workload"
)

// benchPlane runs a control plane, without nodes, until what it returns is called.
func benchPlane(b *testing.B, st store.Store, o controllers.Options) (p *plane.Plane, stop func()) {
	b.Helper()
	p, err := plane.New(plane.Options{Store: st, Logger: slog.New(slog.DiscardHandler), Controllers: o})
	if err != nil {
		b.Fatal(err)
	}
	g := task.NewGroup(b.Context())
	g.Go("control plane", p.Run)
	select {
	case <-p.Ready():
	case <-g.Context().Done():
		b.Fatal(g.Wait())
	}
	return p, func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	}
}

// fill creates n objects side by side.
func fill[T resource.Object](b *testing.B, p *plane.Plane, r *resource.Resource[T], n int, obj func(i int) T) {
	b.Helper()
	if done, err := workload.SideBySide(n, func(i int) error {
		_, err := client.For(p.Admin(), r).Create(b.Context(), obj(i))
		return err
	}); done != n {
		b.Fatal(err)
	}
}

// until waits until so many objects of a namespace (empty: of all) are left.
func until(b *testing.B, p *plane.Plane, def *resource.Def, namespace string, n int) {
	b.Helper()
	c := p.Admin().Cache(def, "")
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	f := c.Follow(cache.FollowOptions{})
	defer f.Close()
	left := map[string]bool{}
	for {
		for _, d := range f.Next() {
			if it := d.Last(); namespace == "" || it.Namespace() == namespace {
				if d.Now == nil {
					delete(left, it.Key)
				} else {
					left[it.Key] = true
				}
			}
		}
		if len(left) == n {
			return
		}
		select {
		case <-f.Ready():
		case <-ctx.Done():
			b.Fatalf("%d %s left, want %d", len(left), def, n)
		}
	}
}

// cleaning is something that is not wanted any more. It is made before the time
// is taken.
type cleaning struct {
	name  string
	sizes []int
	do    func(b *testing.B, st store.Store, n int)
}

// BenchmarkCleaningUp is how long it takes until what is not wanted any more is
// gone: of ten times as much, ten times as long. It is here since no test of a
// controller links etcd.
func BenchmarkCleaningUp(b *testing.B) {
	all := []cleaning{
		{"namespace", []int{1000, 10_000}, emptyNamespace},
		{"held", []int{1000, 10_000}, emptyHeldNamespace},
		{"dependents", []int{2000, 20_000}, dropDependents},
		{"owners", []int{1000, 10_000}, dropOwners},
		{"finished", []int{1000, 10_000}, dropFinished},
	}
	for _, c := range all {
		for _, n := range c.sizes {
			for name, open := range map[string]func(b *testing.B) store.Store{
				"memory": func(*testing.B) store.Store { return mem.New(mem.Options{}) }, "etcd": openEtcd,
			} {
				b.Run(fmt.Sprintf("%s/%s/%d", c.name, name, n), func(b *testing.B) {
					for b.Loop() {
						b.StopTimer()
						c.do(b, open(b), n)
						b.StartTimer()
					}
					b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/object")
				})
			}
		}
	}
}

func configMap(namespace string, i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint("c", i)}}
}

func ownedBy(namespace, name string, owner *metav1.OwnerReference) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if owner != nil {
		meta.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return meta
}

func gone(b *testing.B, p *plane.Plane) {
	b.Helper()
	if err := client.For(p.Admin(), core.Namespaces).Delete(b.Context(), "", "goes", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
}

// emptyNamespace: a namespace with n objects goes.
func emptyNamespace(b *testing.B, st store.Store, n int) {
	p, stop := benchPlane(b, st, controllers.Options{})
	defer stop()
	makeNamespace(b, p)
	fill(b, p, core.ConfigMaps, n, func(i int) *corev1.ConfigMap { return configMap("goes", i) })
	b.StartTimer()
	gone(b, p)
	until(b, p, core.ConfigMaps.Def, "goes", 0)
	b.StopTimer()
}

func makeNamespace(b *testing.B, p *plane.Plane) {
	fill(b, p, core.Namespaces, 1, func(int) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}}
	})
}

// emptyHeldNamespace: its objects are let go one by one.
func emptyHeldNamespace(b *testing.B, st store.Store, n int) {
	p, stop := benchPlane(b, st, controllers.Options{})
	defer stop()
	makeNamespace(b, p)
	fill(b, p, core.ConfigMaps, n, func(i int) *corev1.ConfigMap {
		c := configMap("goes", i)
		c.Finalizers = []string{"example.com/hold"}
		return c
	})
	b.StartTimer()
	gone(b, p)
	maps := client.For(p.Admin(), core.ConfigMaps)
	for i := range n {
		_, err := maps.Patch(b.Context(), "goes", fmt.Sprint("c", i), "", client.Patch{Type: types.MergePatchType, Data: []byte(`{"metadata":{"finalizers":null}}`)})
		if err != nil {
			b.Fatal(err)
		}
	}
	until(b, p, core.ConfigMaps.Def, "goes", 0)
	b.StopTimer()
}

// dropDependents: an owner with n dependents goes.
func dropDependents(b *testing.B, st store.Store, n int) {
	p, stop := benchPlane(b, st, controllers.Options{})
	defer stop()
	owner, err := client.For(p.Admin(), core.Secrets).Create(b.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}})
	if err != nil {
		b.Fatal(err)
	}
	fill(b, p, core.Secrets, n, func(i int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: ownedBy("default", fmt.Sprint("s", i), &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: owner.Name, UID: owner.UID})}
	})
	b.StartTimer()
	if err := client.For(p.Admin(), core.Secrets).Delete(b.Context(), "default", "owner", metav1.DeleteOptions{}); err != nil {
		b.Fatal(err)
	}
	until(b, p, core.Secrets.Def, "default", 0)
	b.StopTimer()
}

// dropOwners: n owners have gone, of a kind that there are n others of.
func dropOwners(b *testing.B, st store.Store, n int) {
	p, stop := benchPlane(b, st, controllers.Options{})
	defer stop()
	fill(b, p, core.Secrets, n, func(i int) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: ownedBy("default", fmt.Sprint("s", i), nil)}
	})
	b.StartTimer()
	fill(b, p, core.ConfigMaps, n, func(i int) *corev1.ConfigMap {
		ref := &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: fmt.Sprint("gone", i), UID: types.UID(fmt.Sprint("gone-", i))}
		return &corev1.ConfigMap{ObjectMeta: ownedBy("kube-public", fmt.Sprint("c", i), ref)}
	})
	until(b, p, core.ConfigMaps.Def, "kube-public", 1) // that of the cluster's CA
	b.StopTimer()
}

// dropFinished: n pods have finished, and half of them may stay.
func dropFinished(b *testing.B, st store.Store, n int) {
	p, stop := benchPlane(b, st, controllers.Options{PodGC: podgc.Options{Threshold: n / 2}})
	defer stop()
	pods := client.For(p.Admin(), core.Pods)
	b.StartTimer()
	_, err := workload.SideBySide(n, func(i int) error {
		pod, err := pods.Create(b.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("p", i)},
			Spec:       corev1.PodSpec{SchedulerName: "none", Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		})
		if err != nil {
			return err
		}
		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodSucceeded
		_, err = pods.UpdateStatus(b.Context(), pod)
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	until(b, p, core.Pods.Def, "default", n/2)
	b.StopTimer()
}
