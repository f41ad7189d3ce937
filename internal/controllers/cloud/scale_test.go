package cloud_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/cloud/loopback"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/cloud"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
)

// counted is a cloud in memory that counts how often it is asked, and takes its time.
type counted struct {
	cloudprovider.Interface // one in a file: what is not counted is never asked
	slow                    time.Duration
	mu                      struct {
		sync.Mutex
		broken error
		calls  map[string]int
		routes map[string]*cloudprovider.Route // by range
	}
}

func newCounted() *counted {
	c := &counted{Interface: &loopback.Cloud{}, slow: 50 * time.Millisecond}
	c.mu.calls, c.mu.routes = map[string]int{}, map[string]*cloudprovider.Route{}
	return c
}

// ask counts a call, and fails if the cloud is broken.
func (c *counted) ask(what string) error {
	time.Sleep(c.slow)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.calls[what]++
	return c.mu.broken
}

// set has all calls fail with err from now on, and forgets how many there were.
func (c *counted) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.broken, c.mu.calls = err, map[string]int{}
}

// count is how often the cloud was asked.
func (c *counted) count() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.mu.calls)
}

func (c *counted) InstancesV2() (cloudprovider.InstancesV2, bool)   { return c, true }
func (c *counted) Routes() (cloudprovider.Routes, bool)             { return c, true }
func (c *counted) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (c *counted) InstanceExists(context.Context, *corev1.Node) (bool, error) {
	return true, c.ask("InstanceExists")
}

func (c *counted) InstanceShutdown(context.Context, *corev1.Node) (bool, error) {
	return false, c.ask("InstanceShutdown")
}

func (c *counted) InstanceMetadata(_ context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	return &cloudprovider.InstanceMetadata{ProviderID: "counted://" + node.Name}, c.ask("InstanceMetadata")
}

func (c *counted) ListRoutes(context.Context, string) (out []*cloudprovider.Route, _ error) {
	err := c.ask("ListRoutes")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.mu.routes {
		out = append(out, r)
	}
	return out, err
}

func (c *counted) CreateRoute(_ context.Context, _, _ string, r *cloudprovider.Route) error {
	if err := c.ask("CreateRoute"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.routes[r.DestinationCIDR] = r
	return nil
}

func (c *counted) DeleteRoute(_ context.Context, _ string, r *cloudprovider.Route) error {
	if err := c.ask("DeleteRoute"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.routes, r.DestinationCIDR)
	return nil
}

func (c *counted) GetLoadBalancer(context.Context, string, *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	return &corev1.LoadBalancerStatus{}, true, c.ask("GetLoadBalancer")
}

func (c *counted) GetLoadBalancerName(_ context.Context, _ string, svc *corev1.Service) string {
	return svc.Name
}

func (c *counted) EnsureLoadBalancer(context.Context, string, *corev1.Service, []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	return &corev1.LoadBalancerStatus{}, c.ask("EnsureLoadBalancer")
}

func (c *counted) UpdateLoadBalancer(context.Context, string, *corev1.Service, []*corev1.Node) error {
	return c.ask("UpdateLoadBalancer")
}

func (c *counted) EnsureLoadBalancerDeleted(context.Context, string, *corev1.Service) error {
	return c.ask("EnsureLoadBalancerDeleted")
}

// TestManyNodesAndServicesAskTheCloudForWhatIsNew counts what many nodes and services ask of a cloud: when they come, when a few nodes
// more do, and when the cloud fails for half an hour.
func TestManyNodesAndServicesAskTheCloudForWhatIsNew(t *testing.T) {
	const many, few = 50, 5
	synctest.Test(t, func(t *testing.T) {
		c, err := sim.Start(t.Context(), sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		}()
		counts := newCounted()
		o := cloud.Options{Provider: counts, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
		g := task.NewGroup(t.Context())
		g.Go("loops", func(ctx context.Context) error {
			return controller.RunAll(ctx, []*controller.Controller{cloud.NewNode(o), cloud.NewNodeLifecycle(o), cloud.NewRoute(o), cloud.NewService(o)}, controller.Env{
				As: func(string) client.Transport { return c.API() }, Logger: slog.New(slog.DiscardHandler),
			})
		})
		defer func() {
			g.Cancel(context.Canceled)
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		}()
		// comes makes a node, which nobody says is ready.
		comes := func(i int) {
			cidr := fmt.Sprintf("10.244.%d.0/24", i)
			_, err := client.For(c.API(), core.Nodes).Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}, Spec: corev1.NodeSpec{
				PodCIDR: cidr, PodCIDRs: []string{cidr}, Taints: []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Effect: corev1.TaintEffectNoSchedule}},
			}})
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(when string, most map[string]int) {
			t.Helper()
			got := counts.count()
			for what, n := range got {
				if n > most[what] {
					t.Errorf("%s: got %d calls of %s, want at most %d", when, n, what, most[what])
				}
			}
			t.Logf("%s: %v", when, got)
		}
		for i := range many {
			comes(i)
			_, err := client.For(c.API(), core.Services).Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("s", i)},
				Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		asks := map[string]int{"InstanceExists": 12 * many, "InstanceShutdown": 12 * many} // a minute's
		with := func(more map[string]int) map[string]int {
			all := maps.Clone(asks)
			maps.Copy(all, more)
			return all
		}
		want("all come", with(map[string]int{
			"InstanceMetadata": many, "CreateRoute": many, "ListRoutes": 6 + 15, "EnsureLoadBalancer": many, "UpdateLoadBalancer": 3 * many,
		}))
		time.Sleep(time.Minute)
		counts.set(nil)
		for i := range few {
			comes(many + i)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(59 * time.Second)
		want("a few nodes come within a second", with(map[string]int{
			"InstanceMetadata": few, "CreateRoute": few, "ListRoutes": 6 + 4, "UpdateLoadBalancer": 4 * many,
		}))
		time.Sleep(time.Minute)
		counts.set(errors.New("too many requests"))
		comes(many + few)
		change, err := client.For(c.API(), core.Services).Get(t.Context(), "default", "s0")
		if err != nil {
			t.Fatal(err)
		}
		change = change.DeepCopy()
		change.Spec.Ports[0].Port = 81
		if _, err := client.For(c.API(), core.Services).Update(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute)
		all := many + few + 1
		want("the cloud fails for half an hour", map[string]int{
			"InstanceMetadata": 7*all + 15, "InstanceExists": 35 * all, "ListRoutes": 185, "UpdateLoadBalancer": 2 * many, "GetLoadBalancer": 2 * many, "InstanceShutdown": 1, // which was under way
			"EnsureLoadBalancer": 12 * many,
		})
	})
}
