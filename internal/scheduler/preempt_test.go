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

func TestPreemptionSparesPodsOfABudgetThatIsAboutAll(t *testing.T) {
	for _, tc := range []struct {
		name     string
		selector *metav1.LabelSelector
		want     string
	}{
		{"an empty selector selects all pods of the namespace, without labels, too", &metav1.LabelSelector{}, "n2"},
		{"none selects nothing", nil, "n1"},
		{"nor does one that nobody understands", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}, "n1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			snap := snapshot.New(nil)
			snap.SetNamespace("default", nil)
			snap.SetNamespace("other", nil)
			for node, prio := range map[string]string{"n1": "prio=1", "n2": "prio=2"} {
				snap.SetNode(parseNode([]string{node, "cpu=1"}))
				p := parsePod([]string{"pod-" + node, "on=" + node, "cpu=1", prio})
				if node == "n2" {
					p.Namespace = "other"
				}
				snap.Add(snap.NewPod(p), node)
			}
			c := newCycle(snap)
			c.budgets.set(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: tc.selector},
			})
			d := c.decide(snap.NewPod(parsePod([]string{"p", "cpu=1", "prio=10"})))
			if pre, _ := c.preempt(d.unfit); pre.node == nil || pre.node.Name != tc.want {
				t.Errorf("got %+v, want room on %s", pre, tc.want)
			}
		})
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
