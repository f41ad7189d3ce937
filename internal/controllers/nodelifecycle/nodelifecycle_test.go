package nodelifecycle_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/controllers/nodelifecycle"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/sim"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

// cluster runs fn with a cluster of nodes that are in a zone each as given.
func cluster(t *testing.T, zones map[string]int, fn func(c *sim.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := sim.Start(t.Context(), sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for zone, n := range zones {
			for i := range n {
				o := sim.NodeOptions{Name: fmt.Sprintf("%s%d", zone, i), Labels: map[string]string{corev1.LabelTopologyZone: zone}}
				if err := c.AddNode(o); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(time.Minute)
		fn(c)
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func stop(t *testing.T, c *sim.Cluster, zone string, n int) {
	t.Helper()
	for i := range n {
		if err := c.StopNode(fmt.Sprintf("%s%d", zone, i)); err != nil {
			t.Fatal(err)
		}
	}
}

// emptied returns when each node of a zone began to be emptied, in order.
func emptied(c *sim.Cluster, zone string) (times []time.Time, lost int) {
	for _, n := range client.Cached(c.API(), core.Nodes, "").List("", nil) {
		if n.Labels[corev1.LabelTopologyZone] != zone {
			continue
		}
		if core.NodeCondition(&n.Status, corev1.NodeReady).Status != corev1.ConditionTrue {
			lost++
		}
		for _, taint := range n.Spec.Taints {
			if taint.Effect == corev1.TaintEffectNoExecute {
				times = append(times, taint.TimeAdded.Time)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return times, lost
}

func wantApart(t *testing.T, times []time.Time, d time.Duration) {
	t.Helper()
	for i := 1; i < len(times); i++ {
		if got := times[i].Sub(times[i-1]); got < d {
			t.Errorf("two nodes began %s after each other, want at least %s", got, d)
		}
	}
}

func TestLostNodesAreEmptiedOneAfterTheOther(t *testing.T) {
	trace.Proves(t, "NODE-044", "NODE-045", "NODE-054", "NODE-055")
	cluster(t, map[string]int{"a": 20}, func(c *sim.Cluster) {
		stop(t, c, "a", 4)
		time.Sleep(3 * time.Minute)
		times, lost := emptied(c, "a")
		if len(times) != 4 || lost != 4 {
			t.Fatalf("got %d of %d lost nodes that are emptied, want 4 of 4", len(times), lost)
		}
		wantApart(t, times, 10*time.Second)
	})
}

func TestEvictionStopsWhenMuchOfASmallZoneIsLost(t *testing.T) {
	trace.Proves(t, "NODE-056", "NODE-057", "NODE-058", "NODE-060")
	cluster(t, map[string]int{"a": 10, "b": 4}, func(c *sim.Cluster) {
		stop(t, c, "a", 7)
		time.Sleep(10 * time.Minute)
		// Two at the most before the zone was known to be cut off.
		if times, lost := emptied(c, "a"); len(times) > 2 || lost != 7 {
			t.Errorf("got %d of %d lost nodes that are emptied, want 2 of 7 at the most", len(times), lost)
		}
		stop(t, c, "b", 1) // another zone goes on as usual
		time.Sleep(2 * time.Minute)
		if times, lost := emptied(c, "b"); len(times) != 1 || lost != 1 {
			t.Errorf("got %d of %d lost nodes of the other zone that are emptied, want 1 of 1", len(times), lost)
		}
	})
}

func TestEvictionIsSlowWhenMuchOfALargeZoneIsLost(t *testing.T) {
	trace.Proves(t, "NODE-057", "NODE-059")
	cluster(t, map[string]int{"a": 60}, func(c *sim.Cluster) {
		stop(t, c, "a", 40)
		time.Sleep(10 * time.Minute)
		times, lost := emptied(c, "a")
		if lost != 40 || len(times) < 5 || len(times) > 8 {
			t.Fatalf("got %d of %d lost nodes that are emptied, want one each 100 s", len(times), lost)
		}
		wantApart(t, times[2:], 100*time.Second)
	})
}

func TestAZoneThatIsLostAsAWholeIsEmptied(t *testing.T) {
	trace.Proves(t, "NODE-062")
	cluster(t, map[string]int{"a": 3, "b": 3}, func(c *sim.Cluster) {
		stop(t, c, "a", 3)
		time.Sleep(3 * time.Minute)
		times, lost := emptied(c, "a")
		if len(times) != 3 || lost != 3 {
			t.Fatalf("got %d of %d lost nodes that are emptied, want 3 of 3", len(times), lost)
		}
		wantApart(t, times, 10*time.Second)
	})
}

func TestNobodyIsEvictedWhileAllNodesAreLost(t *testing.T) {
	trace.Proves(t, "NODE-063")
	cluster(t, map[string]int{"a": 2, "b": 2}, func(c *sim.Cluster) {
		stop(t, c, "a", 2)
		stop(t, c, "b", 2)
		time.Sleep(10 * time.Minute)
		for _, zone := range []string{"a", "b"} {
			if times, lost := emptied(c, zone); len(times) != 0 || lost != 2 {
				t.Errorf("zone %s: got %d of %d lost nodes that are emptied, want 0 of 2", zone, len(times), lost)
			}
		}
		for _, name := range []string{"a0", "a1", "b0"} { // one stays away
			if err := c.StartNode(name); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Minute)
		if times, lost := emptied(c, "b"); len(times) != 1 || lost != 1 {
			t.Errorf("got %d of %d lost nodes that are emptied, want 1 of 1", len(times), lost)
		}
	})
}

// behind is a transport whose cache of leases stands still.
type behind struct {
	client.Transport
	leases *cache.Cache
}

func (b behind) Cache(def *resource.Def, scope string) *cache.Cache {
	if def == coordination.Leases.Def {
		return b.leases
	}
	return b.Transport.Cache(def, scope)
}

// TestNodesAreNotLostToACacheThatIsBehind runs a controller that hears of no lease any more,
// while the node goes on to renew its own.
func TestNodesAreNotLostToACacheThatIsBehind(t *testing.T) {
	cluster(t, map[string]int{"a": 1}, func(c *sim.Cluster) {
		live := c.API().Cache(coordination.Leases.Def, "")
		stands := cache.New(live.Def, live.Progress)
		stands.Replace(live.List("", nil), live.Rev())
		g := task.NewGroup(context.WithoutCancel(t.Context())) // which is not of the bubble
		g.Go("controller", func(ctx context.Context) error {
			return nodelifecycle.New(nodelifecycle.Options{}).Run(ctx, controller.Env{
				As:     func(string) client.Transport { return behind{c.API(), stands} },
				Logger: slog.New(slog.DiscardHandler),
			})
		})
		ready := func() corev1.ConditionStatus {
			n, ok := client.Cached(c.API(), core.Nodes, "").Get("", "a0")
			if !ok {
				t.Fatal("the node is gone")
			}
			return core.NodeCondition(&n.Status, corev1.NodeReady).Status
		}
		for at := range 240 {
			time.Sleep(time.Second)
			if got := ready(); got != corev1.ConditionTrue {
				t.Fatalf("after %d s the node is ready: %s, want True", at+1, got)
			}
		}
		// It is lost when it is.
		stop(t, c, "a", 1)
		time.Sleep(2 * time.Minute)
		if got := ready(); got != corev1.ConditionUnknown {
			t.Errorf("the node is silent, and ready: %s, want Unknown", got)
		}
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}
