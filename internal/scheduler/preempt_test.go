package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// guarded makes a cluster of nodes each full of one pod, of which a budget allows
// none to go, but for that of one node.
func guarded(nodes, free int) *cycle {
	snap := snapshot.New(nil)
	snap.SetNamespace("default", nil)
	for i := range nodes {
		name, app := fmt.Sprint("node-", i), "guarded"
		if i == free {
			app = "free"
		}
		snap.SetNode(parseNode([]string{name, "cpu=1"}))
		p := parsePod([]string{fmt.Sprint("pod-", i), "app=" + app, "on=" + name, "cpu=1", "prio=1"})
		snap.Add(snap.NewPod(p), name)
	}
	c := newCycle(snap)
	c.budgets.set(guarding("default", "b", "guarded"))
	return c
}

func guarding(namespace, name, app string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: mustSelector("app=" + app)},
	}
}

func TestPreemptionLooksOnForANodeThatViolatesNoBudget(t *testing.T) {
	const nodes, free = 400, 250
	c := guarded(nodes, free)
	for seed := range uint64(20) {
		c.rand = rand.New(rand.NewPCG(seed, 0))
		d := c.decide(c.snapshot.NewPod(parsePod([]string{fmt.Sprint("p", seed), "cpu=1", "prio=10"})))
		pre, _ := c.preempt(d.unfit)
		if pre.node == nil || pre.node.Name != fmt.Sprint("node-", free) {
			t.Errorf("seed %d: got %+v, want the node of the pod that no budget is about", seed, pre)
		}
	}
}

// BenchmarkPreemption beside budgets of other namespaces and of this one.
func BenchmarkPreemption(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("budgets=%d", n), func(b *testing.B) {
			c := guarded(1000, 0)
			for i := range n {
				c.budgets.set(guarding(fmt.Sprint("ns-", i%10), fmt.Sprint("b", i), "other"))
				c.budgets.set(guarding("default", fmt.Sprint("d", i), "other"))
			}
			d := c.decide(c.snapshot.NewPod(parsePod([]string{"p", "cpu=1", "prio=10"})))
			b.ReportAllocs()
			for b.Loop() {
				if pre, _ := c.preempt(d.unfit); pre.node == nil {
					b.Fatal("no node")
				}
			}
		})
	}
}
