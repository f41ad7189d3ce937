package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// room is what making room on a node would cost, by the definitions.
type room struct {
	violations int
	victims    []*corev1.Pod // the most important first
}

// rank is what rooms are compared by: the lowest is the best.
func (o *room) rank() []int64 {
	first, sum := o.victims[0], int64(0)
	for _, v := range o.victims {
		sum += int64(*v.Spec.Priority) + 1<<31
	}
	started := first.Status.StartTime.Unix()
	for _, v := range o.victims {
		if *v.Spec.Priority == *first.Spec.Priority {
			started = min(started, v.Status.StartTime.Unix())
		}
	}
	return []int64{int64(o.violations), int64(*first.Spec.Priority), sum, int64(len(o.victims)), -started}
}

func cpuOf(p *corev1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }

// holds reports whether a pod can be on a node beside those that are there.
func (cl *plainCluster) holds(p *corev1.Pod, n *corev1.Node) bool {
	used := cpuOf(p)
	for _, other := range cl.pods {
		if other.Spec.NodeName == n.Name {
			used += cpuOf(other)
		}
	}
	return used <= n.Status.Allocatable.Cpu().MilliValue() && cl.fits(p, n)
}

// without is the cluster less some pods.
func (cl *plainCluster) without(gone []*corev1.Pod) *plainCluster {
	left := slices.DeleteFunc(slices.Clone(cl.pods), func(p *corev1.Pod) bool { return slices.Contains(gone, p) })
	return &plainCluster{nodes: cl.nodes, pods: left, teams: cl.teams}
}

// roomOn is who would have to leave a node for a pod; nil: it does not help.
func (cl *plainCluster) roomOn(p *corev1.Pod, n *corev1.Node, budgets []*policyv1.PodDisruptionBudget) *room {
	var gone []*corev1.Pod
	for _, other := range cl.pods {
		if other.Spec.NodeName == n.Name && *other.Spec.Priority < *p.Spec.Priority {
			gone = append(gone, other)
		}
	}
	if len(gone) == 0 || !cl.without(gone).holds(p, n) {
		return nil
	}
	byWeight := func(a, b *corev1.Pod) int {
		if *a.Spec.Priority != *b.Spec.Priority {
			return int(*b.Spec.Priority - *a.Spec.Priority)
		}
		return a.Status.StartTime.Compare(b.Status.StartTime.Time)
	}
	slices.SortFunc(gone, byWeight)
	var forbidden, others []*corev1.Pod
	spent := map[string]int32{}
	for _, v := range gone {
		violates := false
		for _, b := range budgets {
			if b.Namespace == v.Namespace && matches(b.Spec.Selector, v) {
				spent[b.Name]++
				violates = violates || spent[b.Name] > b.Status.DisruptionsAllowed
			}
		}
		if violates {
			forbidden = append(forbidden, v)
		} else {
			others = append(others, v)
		}
	}
	o := &room{}
	for _, v := range slices.Concat(forbidden, others) {
		fewer := slices.DeleteFunc(slices.Clone(gone), func(x *corev1.Pod) bool { return x == v })
		if cl.without(fewer).holds(p, n) {
			gone = fewer
		} else if slices.Contains(forbidden, v) {
			o.violations++
		}
	}
	o.victims = gone
	return o
}

// TestPreemptsWhomTheRulesSay compares, in random clusters, the node and the victims that preemption
// chooses with those that follow from the rules, applied to every node pod by pod.
func TestPreemptsWhomTheRulesSay(t *testing.T) {
	seed, told, violating := uint64(time.Now().UnixNano()), 0, 0
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	for round := range 400 {
		cl, budgets := fullPlainCluster(r)
		snap := snapshot.New(nil)
		c := newCycle(snap)
		for ns, team := range cl.teams {
			snap.SetNamespace(ns, map[string]string{"team": team})
		}
		for _, n := range cl.nodes {
			snap.SetNode(n)
		}
		for _, p := range cl.pods {
			snap.Add(snap.NewPod(p), p.Spec.NodeName)
		}
		for _, b := range budgets {
			c.budgets.set(b)
		}
		for i := range 6 { // the same again: what is remembered is true
			p := randomGuest(r, fmt.Sprint("guest-", i), i%2*10)
			rooms, best := map[string]*room{}, []int64(nil)
			fits := false
			for _, n := range cl.nodes {
				fits = fits || cl.holds(p, n)
				if o := cl.roomOn(p, n, budgets); o != nil {
					rooms[n.Name] = o
					if rank := o.rank(); best == nil || slices.Compare(rank, best) < 0 {
						best = rank
					}
				}
			}
			d := c.decide(snap.NewPod(p))
			if fits != (d.node != nil) {
				t.Fatalf("seed %d round %d: decided %+v, want a node: %t", seed, round, d, fits)
			}
			if fits {
				continue
			}
			pre, _ := c.preempt(d.unfit)
			if best == nil || pre.node == nil {
				if (best == nil) != (pre.node == nil) {
					t.Fatalf("seed %d round %d: got %+v, want room: %t", seed, round, pre, best != nil)
				}
				continue
			}
			told++
			o := rooms[pre.node.Name]
			if o == nil || slices.Compare(o.rank(), best) != 0 {
				t.Fatalf("seed %d round %d: chose %s of rank %v, want rank %v", seed, round, pre.node.Name, o, best)
			}
			if o.violations > 0 {
				violating++
			}
			var got, want []string
			for _, v := range pre.victims {
				got = append(got, v.Obj.Name)
			}
			for _, v := range o.victims {
				want = append(want, v.Name)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d round %d on %s: victims %s, want %s", seed, round, pre.node.Name, strings.Join(got, " "), strings.Join(want, " "))
			}
		}
	}
	if told < 300 || violating < 10 {
		t.Errorf("%d pods made room, %d of them against budgets, want 300 and 10", told, violating)
	}
}

func fullPlainCluster(r *rand.Rand) (*plainCluster, []*policyv1.PodDisruptionBudget) {
	cl := &plainCluster{teams: map[string]string{"default": "x", "other": "y"}}
	n := 0
	for i := range 2 + r.IntN(5) {
		cl.nodes = append(cl.nodes, parseNode([]string{fmt.Sprintf("n%d", i), "cpu=4", "zone=" + choose(r, "a", "b")}))
		for used := 0; used < 4; n++ {
			cpu := 1 + r.IntN(2)
			used += cpu
			words := []string{choose(r, "default", "other") + fmt.Sprint("/p", n), "app=" + choose(r, "web", "db"), fmt.Sprint("cpu=", min(cpu, 4-used+cpu)), fmt.Sprint("prio=", r.IntN(4)), fmt.Sprint("started=", 1000+r.IntN(1000)*100+n)}
			if r.IntN(6) == 0 {
				words = append(words, "apart=host:app=db")
			}
			p := parsePod(words)
			p.Spec.NodeName = cl.nodes[i].Name
			cl.pods = append(cl.pods, p)
		}
	}
	var budgets []*policyv1.PodDisruptionBudget
	for i := range r.IntN(3) {
		b := guarding(choose(r, "default", "other"), fmt.Sprint("b", i), choose(r, "web", "db"))
		b.Status.DisruptionsAllowed = int32(r.IntN(2))
		budgets = append(budgets, b)
	}
	return cl, budgets
}

// randomGuest is a pod of one of few shapes.
func randomGuest(r *rand.Rand, name string, more int) *corev1.Pod {
	words := []string{name, "app=" + choose(r, "web", "db"), fmt.Sprint("cpu=", 1+r.IntN(3)), fmt.Sprint("prio=", 2+more)}
	switch r.IntN(5) {
	case 0:
		words = append(words, "apart="+choose(r, "host", "zone")+":app=web")
	case 1:
		words = append(words, "spread=host:1:app=db")
	}
	return parsePod(words)
}
