package endpoint_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/endpoint"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	benchServices = 1000
	benchPods     = 5000
)

// caches are all that a controller has of the API here.
type caches struct {
	client.Transport
	of map[*resource.Def]*cache.Cache
}

func (c caches) Cache(def *resource.Def, _ string) *cache.Cache { return c.of[def] }

// counting tells when each of so many services has been reconciled.
type counting struct {
	left atomic.Int64
	all  chan struct{}
}

func (c *counting) Reconcile(context.Context, *corev1.Service) (controller.Next, error) {
	if c.left.Add(-1) == 0 {
		close(c.all)
	}
	return controller.Done, nil
}

// BenchmarkPodEvent is what a change of a pod costs each controller of services
// before any service is looked at: 1,000 services share 5,000 pods of a namespace.
func BenchmarkPodEvent(b *testing.B) {
	labels := func(i int) map[string]string {
		return map[string]string{"app": fmt.Sprintf("app-%d", i%benchServices), "tier": "web", "pod-template-hash": "5d6f7c8b9"}
	}
	var services, pods []*cache.Item
	for i := range benchServices {
		name := fmt.Sprintf("app-%d", i)
		services = append(services, &cache.Item{Key: cache.Key("default", name), Rev: 1, Object: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1"},
			Spec:       corev1.ServiceSpec{Selector: map[string]string{"tier": "web", "app": name}},
		}})
	}
	for i := range benchPods {
		name := fmt.Sprintf("pod-%d", i)
		pods = append(pods, &cache.Item{Key: cache.Key("default", name), Rev: 1, Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: "1", Labels: labels(i)},
		}})
	}
	t := caches{of: map[*resource.Def]*cache.Cache{}}
	for def, items := range map[*resource.Def][]*cache.Item{core.Services.Def: services, core.Pods.Def: pods} {
		t.of[def] = cache.New(def, &cache.Progress{})
		t.of[def].Replace(items, 1)
	}
	var kit *controller.Kit
	reconciled := &counting{all: make(chan struct{})}
	reconciled.left.Store(benchServices)
	c := controller.New(controller.Spec[*corev1.Service]{
		Name: "test-controller", For: core.Services, Watches: []controller.Watch{endpoint.Selecting},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Service] {
			kit = k
			return reconciled
		},
	})
	g := task.NewGroup(b.Context())
	g.Go("controller", func(ctx context.Context) error {
		return c.Run(ctx, controller.Env{As: func(string) client.Transport { return t }, Logger: slog.New(slog.DiscardHandler)})
	})
	defer func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			b.Error(err)
		}
	}()
	<-reconciled.all
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if keys := endpoint.Selecting.Keys(kit, pods[i%benchPods].Object); len(keys) != 1 {
			b.Fatalf("got %v for pod %d, want its service", keys, i)
		}
		i++
	}
}
