package scheduler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

func TestSearchesPartOfLargeClusters(t *testing.T) {
	for _, tc := range []struct{ percentage, nodes, want int }{
		{0, 1, 1}, {0, 99, 99}, {0, 100, 100}, {0, 250, 120}, {0, 1000, 420}, {0, 5000, 500}, {0, 6000, 300}, {0, 20000, 1000},
		{70, 1000, 700}, {5, 1000, 100}, {100, 5000, 5000},
	} {
		c := &cycle{percentage: tc.percentage}
		if got := c.enough(tc.nodes); got != tc.want {
			t.Errorf("%d %% of %d nodes: got %d, want %d", tc.percentage, tc.nodes, got, tc.want)
		}
	}
}

func TestSearchGoesOnWhereTheLastOneEnded(t *testing.T) {
	snap := snapshot.New(nil)
	for i := range 300 {
		snap.SetNode(parseNode([]string{fmt.Sprintf("n%03d", i)}))
	}
	c := newCycle(snap)
	seen := map[string]int{}
	for range 20 {
		c.decide(snap.NewPod(parsePod([]string{"p"})))
		for _, n := range c.feasible {
			seen[n.Name]++
		}
	}
	if each := 20 * c.enough(300) / 300; len(seen) != 300 || slices.Min(values(seen)) < each || slices.Max(values(seen)) > each+1 {
		t.Errorf("%d nodes seen, %d to %d times; want each %d times", len(seen), slices.Min(values(seen)), slices.Max(values(seen)), each)
	}
}

func TestChoosesFairlyAmongEqualNodes(t *testing.T) {
	snap := snapshot.New(nil)
	for i := range 10 {
		snap.SetNode(parseNode([]string{fmt.Sprintf("n%d", i)}))
	}
	c := newCycle(snap)
	chosen := map[string]int{}
	for range 10000 {
		chosen[c.decide(snap.NewPod(parsePod([]string{"p"}))).node.Name]++
	}
	for name, n := range chosen {
		if n < 850 || n > 1150 {
			t.Errorf("%s was chosen %d times of 10000, want about 1000", name, n)
		}
	}
}

func TestNodesTakeTurnsByZone(t *testing.T) {
	snap := snapshot.New(nil)
	for _, line := range []string{"a1 zone=a", "a2 zone=a", "a3 zone=a", "b1 zone=b", "c1 zone=c", "c2 zone=c"} {
		snap.SetNode(parseNode(split(line)))
	}
	var got []string
	for _, n := range snap.Nodes() {
		got = append(got, n.Name)
	}
	if want := "a1 b1 c1 a2 c2 a3"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func values(m map[string]int) (list []int) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// TestFindsTheNodesThatTheDefinitionsSay compares, in random clusters, the nodes
// found with those that follow from the definitions of pod affinity and topology
// spread, counted pod by pod.
func TestFindsTheNodesThatTheDefinitionsSay(t *testing.T) {
	seed, told := uint64(time.Now().UnixNano()), 0
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for round := range 300 {
		cl := randomCluster(r)
		snap := snapshot.New(nil)
		for ns, team := range cl.teams {
			snap.SetNamespace(ns, map[string]string{"team": team})
		}
		for _, n := range cl.nodes {
			snap.SetNode(n)
		}
		for _, p := range cl.pods {
			snap.Add(snap.NewPod(p), p.Spec.NodeName)
		}
		c := newCycle(snap)
		for range 5 {
			p := cl.randomPod(r, "candidate")
			c.decide(snap.NewPod(p))
			var want []string
			for _, n := range cl.nodes {
				if cl.fits(p, n) {
					want = append(want, n.Name)
				}
			}
			slices.Sort(want)
			if got := names(c.feasible); got != strings.Join(want, " ") {
				t.Fatalf("seed %d round %d: pod %+v\ngot %s\nwant %v", seed, round, p, got, want)
			}
			if len(want) > 0 && len(want) < len(cl.nodes) {
				told++
			}
		}
	}
	if told < 300 {
		t.Errorf("%d of 1500 pods fitted on some nodes and not on others, want a fifth", told)
	}
}

// plainCluster is objects, and the definitions.
type plainCluster struct {
	nodes []*corev1.Node
	pods  []*corev1.Pod
	teams map[string]string // by namespace
}

func choose(r *rand.Rand, list ...string) string { return list[r.IntN(len(list))] }

func randomCluster(r *rand.Rand) *plainCluster {
	cl := &plainCluster{teams: map[string]string{"default": choose(r, "x", "y"), "other": choose(r, "x", "y")}}
	for i := range 2 + r.IntN(6) {
		words := []string{fmt.Sprintf("n%d", i)}
		if r.IntN(5) > 0 {
			words = append(words, "zone="+choose(r, "a", "b", "c"))
		}
		if r.IntN(5) == 0 {
			words = append(words, "taint=k=v:NoSchedule")
		}
		if r.IntN(2) == 0 {
			words = append(words, "disk="+choose(r, "ssd", "hdd"))
		}
		cl.nodes = append(cl.nodes, parseNode(words))
	}
	for i := range r.IntN(12) {
		p := cl.randomPod(r, fmt.Sprintf("p%d", i))
		p.Spec.NodeName = cl.nodes[r.IntN(len(cl.nodes))].Name
		if r.IntN(6) == 0 {
			p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		cl.pods = append(cl.pods, p)
	}
	return cl
}

func (cl *plainCluster) randomPod(r *rand.Rand, name string) *corev1.Pod {
	words := []string{choose(r, "default", "other") + "/" + name, "app=" + choose(r, "web", "db")}
	sometimes := func(n int, word string) {
		if r.IntN(n) == 0 {
			words = append(words, word)
		}
	}
	selector := func() string { return "app=" + choose(r, "web", "db") }
	sometimes(3, "tol=k")
	sometimes(4, "select=disk=ssd")
	sometimes(4, "near="+choose(r, "zone", "host")+":"+selector())
	sometimes(8, "near=zone:"+selector()+":team=x")
	sometimes(4, "apart="+choose(r, "zone", "host")+":"+selector())
	sometimes(8, "apart=zone:"+selector()+":team=y")
	sometimes(3, fmt.Sprintf("spread=zone:%d:%s%s", 1+r.IntN(2), selector(), choose(r, "", "", ":taints", ":affinity", ":mindomains=3", ":mindomains=2,taints")))
	sometimes(4, fmt.Sprintf("spread=host:%d:%s", 1+r.IntN(2), selector()))
	return parsePod(words)
}

func (cl *plainCluster) node(name string) *corev1.Node {
	for _, n := range cl.nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

func matches(sel *metav1.LabelSelector, p *corev1.Pod) bool {
	s, err := metav1.LabelSelectorAsSelector(sel)
	return err == nil && s.Matches(labels.Set(p.Labels))
}

func (cl *plainCluster) about(owner *corev1.Pod, t *corev1.PodAffinityTerm, p *corev1.Pod) bool {
	here := p.Namespace == owner.Namespace
	if t.NamespaceSelector != nil {
		here = t.NamespaceSelector.MatchLabels["team"] == cl.teams[p.Namespace]
	}
	return here && matches(t.LabelSelector, p)
}

// near reports whether two nodes are in the same domain.
func near(key string, a, b *corev1.Node) bool {
	v, ok := a.Labels[key]
	w, also := b.Labels[key]
	return ok && also && v == w
}

func tolerated(p *corev1.Pod, n *corev1.Node) bool {
	return len(n.Spec.Taints) == 0 || len(p.Spec.Tolerations) > 0
}

func selected(p *corev1.Pod, n *corev1.Node) bool {
	return labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels))
}

func (cl *plainCluster) fits(p *corev1.Pod, n *corev1.Node) bool {
	if !tolerated(p, n) || !selected(p, n) || !cl.spreads(p, n) {
		return false
	}
	var affinity, anti []corev1.PodAffinityTerm
	if a := p.Spec.Affinity; a != nil {
		affinity = a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		anti = a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if !cl.hasNear(p, n, affinity) {
		return false
	}
	for _, other := range cl.pods {
		at := cl.node(other.Spec.NodeName)
		for i := range anti {
			if cl.about(p, &anti[i], other) && near(anti[i].TopologyKey, at, n) {
				return false
			}
		}
		if a := other.Spec.Affinity; a != nil {
			for _, t := range a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				if cl.about(other, &t, p) && near(t.TopologyKey, at, n) {
					return false
				}
			}
		}
	}
	return true
}

// hasNear: for each term there is a pod near that all terms are about; or there
// is no such pod anywhere, and the pod itself is one.
func (cl *plainCluster) hasNear(p *corev1.Pod, n *corev1.Node, terms []corev1.PodAffinityTerm) bool {
	all := func(other *corev1.Pod) bool {
		for i := range terms {
			if !cl.about(p, &terms[i], other) {
				return false
			}
		}
		return true
	}
	anywhere, everyTerm := false, true
	for i := range terms {
		key := terms[i].TopologyKey
		if _, ok := n.Labels[key]; !ok {
			return false
		}
		found := false
		for _, other := range cl.pods {
			at := cl.node(other.Spec.NodeName)
			if _, ok := at.Labels[key]; ok && all(other) {
				anywhere = true
				found = found || near(key, at, n)
			}
		}
		everyTerm = everyTerm && found
	}
	return everyTerm || !anywhere && all(p)
}

func (cl *plainCluster) spreads(p *corev1.Pod, n *corev1.Node) bool {
	for _, c := range p.Spec.TopologySpreadConstraints {
		counts := map[string]int{}
		for _, m := range cl.nodes {
			if cl.counted(p, &c, m) {
				counts[m.Labels[c.TopologyKey]] += 0
			}
		}
		for _, other := range cl.pods {
			at := cl.node(other.Spec.NodeName)
			if cl.counted(p, &c, at) && other.Namespace == p.Namespace && other.DeletionTimestamp == nil && matches(c.LabelSelector, other) {
				counts[at.Labels[c.TopologyKey]]++
			}
		}
		least := math.MaxInt
		for _, k := range counts {
			least = min(least, k)
		}
		if c.MinDomains != nil && len(counts) < int(*c.MinDomains) {
			least = 0
		}
		v, ok := n.Labels[c.TopologyKey]
		if !ok {
			return false
		}
		self := 0
		if matches(c.LabelSelector, p) {
			self = 1
		}
		if counts[v]+self-least > int(c.MaxSkew) {
			return false
		}
	}
	return true
}

// counted reports whether a constraint counts a node.
func (cl *plainCluster) counted(p *corev1.Pod, c *corev1.TopologySpreadConstraint, n *corev1.Node) bool {
	for _, other := range p.Spec.TopologySpreadConstraints {
		if _, ok := n.Labels[other.TopologyKey]; !ok {
			return false
		}
	}
	if c.NodeAffinityPolicy == nil && !selected(p, n) {
		return false
	}
	return c.NodeTaintsPolicy == nil || tolerated(p, n)
}
