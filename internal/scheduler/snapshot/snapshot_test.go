package snapshot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// TestIncrementalSnapshotEqualsOneBuiltAnew changes a snapshot at random and
// compares every count with those of a snapshot made from the same objects (S1, S2, S3).
func TestIncrementalSnapshotEqualsOneBuiltAnew(t *testing.T) {
	for range 20 {
		seed := uint64(time.Now().UnixNano())
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w := newWorld(seed)
			for step := range 400 {
				w.change()
				if step%20 != 0 {
					continue
				}
				w.ask(w.s)
				anew := w.anew()
				w.ask(anew)
				if got, want := describe(w.s), describe(anew); got != want {
					t.Fatalf("after step %d of seed %d:\n%s", step, seed, firstDifference(got, want))
				}
			}
			if w.made < 80 {
				t.Errorf("only %d pods were made in 400 steps", w.made)
			}
		})
	}
}

// world is the objects of a cluster and the snapshot that follows them.
type world struct {
	rand       *rand.Rand
	s          *Snapshot
	nodes      map[string]*corev1.Node
	pods       map[types.UID]*corev1.Pod
	namespaces map[string]map[string]string
	made       int
}

func newWorld(seed uint64) *world {
	return &world{
		rand: rand.New(rand.NewPCG(seed, seed)), s: New(nil), nodes: map[string]*corev1.Node{},
		pods: map[types.UID]*corev1.Pod{}, namespaces: map[string]map[string]string{},
	}
}

// anew builds a snapshot from the objects alone.
func (w *world) anew() *Snapshot {
	s := New(nil)
	for name, set := range w.namespaces {
		s.SetNamespace(name, set)
	}
	for _, n := range w.nodes {
		s.SetNode(n)
	}
	for _, p := range w.pods {
		s.Add(s.NewPod(p), p.Spec.NodeName)
	}
	return s
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

func (w *world) change() {
	switch w.rand.IntN(12) {
	case 0, 1:
		n := w.node()
		w.nodes[n.Name] = n
		w.s.SetNode(n)
	case 2:
		name := w.nodeName()
		delete(w.nodes, name)
		w.s.RemoveNode(name)
	case 3, 4, 5, 6:
		p := w.pod()
		w.pods[p.UID] = p
		w.s.Add(w.s.NewPod(p), p.Spec.NodeName)
	case 7, 8:
		if p := w.anyPod(); p != nil {
			delete(w.pods, p.UID)
			w.s.Remove(w.s.Pod(p.UID))
		}
	case 9:
		w.updatePod()
	case 10:
		name, set := pick(w.rand, "a", "b"), map[string]string{"team": pick(w.rand, "x", "y")}
		w.namespaces[name] = set
		w.s.SetNamespace(name, set)
	case 11:
		w.whatIf()
	}
}

// whatIf changes the snapshot and puts it back (S1), or sweeps it (S3).
func (w *world) whatIf() {
	name := w.nodeName()
	n := w.s.Node(name)
	switch {
	case w.rand.IntN(3) == 0:
		w.s.Sweep()
	case n == nil:
	case len(n.Pods) > 0:
		p := n.Pods[w.rand.IntN(len(n.Pods))]
		w.s.Lift(p)
		w.ask(w.s)
		w.s.Lower(p, n)
	default:
		p := w.s.NewPod(w.pod())
		w.s.Try([]*Pod{p}, n, func() { w.ask(w.s) })
	}
}

func (w *world) updatePod() {
	p := w.anyPod()
	if p == nil {
		return
	}
	p = p.DeepCopy()
	switch w.rand.IntN(3) {
	case 0:
		p.Labels = w.labels()
	case 1:
		p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	case 2:
		p.Spec.Containers[0].Resources.Requests = w.requests()
	}
	w.pods[p.UID] = p
	w.s.Update(w.s.Pod(p.UID), p)
}

func (w *world) anyPod() *corev1.Pod {
	if len(w.pods) == 0 {
		return nil
	}
	return w.pods[pick(w.rand, slices.Sorted(maps.Keys(w.pods))...)]
}

func (w *world) nodeName() string { return fmt.Sprintf("n%d", w.rand.IntN(6)) }

func (w *world) labels() map[string]string {
	return map[string]string{"app": pick(w.rand, "web", "db"), "tier": pick(w.rand, "1", "2")}
}

func (w *world) requests() corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, name := range []corev1.ResourceName{"cpu", "memory", "example.com/gpu"} {
		if w.rand.IntN(2) == 0 {
			list[name] = *resource.NewQuantity(w.rand.Int64N(5), resource.DecimalSI)
		}
	}
	return list
}

func (w *world) node() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.nodeName(), Labels: map[string]string{}}}
	n.Labels["host"] = n.Name
	if w.rand.IntN(4) > 0 {
		n.Labels["zone"] = pick(w.rand, "a", "b", "c")
	}
	if w.rand.IntN(4) == 0 {
		n.Spec.Taints = []corev1.Taint{{Key: "k", Value: pick(w.rand, "1", "2"), Effect: pick(w.rand, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule)}}
	}
	n.Spec.Unschedulable = w.rand.IntN(8) == 0
	n.Status.Allocatable = w.requests()
	n.Status.Allocatable["pods"] = resource.MustParse("10")
	for _, image := range []string{"one:1", "two:2"} {
		if w.rand.IntN(2) == 0 {
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: 5})
		}
	}
	return n
}

func (w *world) term() corev1.PodAffinityTerm {
	t := corev1.PodAffinityTerm{
		TopologyKey:   pick(w.rand, "zone", "host"),
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(w.rand, "web", "db")}},
	}
	if w.rand.IntN(3) == 0 {
		t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(w.rand, "x", "y")}}
	}
	return t
}

func (w *world) pod() *corev1.Pod {
	w.made++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: pick(w.rand, "a", "b"), Name: fmt.Sprintf("p%d", w.made), UID: types.UID(fmt.Sprintf("p%d", w.made)), Labels: w.labels()},
		Spec: corev1.PodSpec{NodeName: w.nodeName(), Containers: []corev1.Container{{
			Resources: corev1.ResourceRequirements{Requests: w.requests()},
		}}},
	}
	if w.rand.IntN(4) == 0 {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 80, Protocol: corev1.ProtocolTCP}}
	}
	if w.rand.IntN(2) == 0 {
		p.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{w.term()},
				PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: w.term()}},
			},
			PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{w.term()},
			},
		}
	}
	return p
}

// ask asks for all kinds of counts, so that the snapshot keeps them.
func (w *world) ask(s *Snapshot) {
	app := labels.SelectorFromSet(labels.Set{"app": "web"})
	tier := labels.SelectorFromSet(labels.Set{"tier": "1"})
	team := labels.SelectorFromSet(labels.Set{"team": "x"})
	in := NewMatcher([]string{"a"}, nil, app)
	all := s.NodeSet("", nil)
	zoned := s.NodeSet("zoned", func(n *Node) bool { _, ok := n.Obj.Labels["zone"]; return ok && n.Taints == nil })
	for _, ps := range []*PodSet{
		s.PodSet(true, in), s.PodSet(false, in), s.PodSet(false, NewMatcher([]string{"b"}, team, tier)),
		s.PodSet(false, in, NewMatcher([]string{"a", "b"}, nil, tier)),
	} {
		for _, key := range []string{"zone", "host"} {
			s.View(ps, s.Topology(key), all)
			s.View(ps, s.Topology(key), zoned)
		}
	}
	for _, ns := range []string{"a", "b"} {
		for _, a := range []string{"web", "db"} {
			for _, tr := range []string{"1", "2"} {
				s.Class(&Pod{Obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Labels: map[string]string{"app": a, "tier": tr}}}})
			}
		}
	}
}

// describe writes down everything that can be counted, by names and not by numbers.
func describe(s *Snapshot) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, n := range s.slots {
		if n != nil {
			describeNode(s, n, add)
		}
	}
	for name, i := range s.images {
		add("image %s size %d nodes %d", name, i.Size, i.Nodes)
	}
	for key, ns := range s.nodeSets {
		add("node set %q size %d", key, ns.Len())
	}
	for key, ps := range s.podSets {
		for _, v := range ps.views {
			name := fmt.Sprintf("view %s by %s in %q", key, v.Topology.Key, v.in.key)
			add("%s: total %d domains %d min %d", name, v.Total(), v.Domains(), v.Min())
			for value, d := range v.Topology.ids {
				add("%s: %s has %d", name, value, v.In(d))
			}
		}
	}
	for key, t := range s.terms {
		for value, d := range t.Topology.ids {
			if sum := t.In(d); sum != 0 {
				add("term %s: %s has %d", key, value, sum)
			}
		}
	}
	for key, c := range s.classes {
		describeClass(key, c, add)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func describeNode(s *Snapshot, n *Node, add func(string, ...any)) {
	used := map[corev1.ResourceName]int64{}
	free := map[corev1.ResourceName]int64{}
	for i, name := range s.resources.names {
		if i < len(n.Used) && n.Used[i] != 0 {
			used[name] = n.Used[i]
		}
		free[name] = n.Free(i)
		if free[name] == 0 {
			delete(free, name)
		}
	}
	var uids []string
	for _, p := range n.Pods {
		uids = append(uids, string(p.Obj.UID))
	}
	slices.Sort(uids)
	add("node %s known %t used %v free %v scored %v ports %v pods %v taints %v cordoned %t",
		n.Name, n.Obj != nil, used, free, n.Scored, n.HostPorts, uids, n.Taints, n.Unschedulable)
	for key, ns := range s.nodeSets {
		add("node %s in %q: %t", n.Name, key, ns.Has(n))
	}
	for key, ps := range s.podSets {
		add("node %s pods of %s: %d", n.Name, key, ps.On(n))
	}
	for key, t := range s.topologies {
		if d, ok := t.Domain(n); ok {
			add("node %s %s: %s", n.Name, key, t.Value(d))
		}
	}
}

func describeClass(key string, c *Class, add func(string, ...any)) {
	var sets []string
	for _, ps := range c.sets {
		sets = append(sets, ps.key)
	}
	slices.Sort(sets)
	add("class %q pods %d sets %v", key, len(c.pods), sets)
	for _, t := range slices.Concat(c.avoid, c.prefer) {
		if t.holders > 0 {
			add("class %q term %s", key, t.key)
		}
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	var out []string
	for _, line := range g {
		if !slices.Contains(w, line) {
			out = append(out, "  got "+line)
		}
	}
	for _, line := range w {
		if !slices.Contains(g, line) {
			out = append(out, " want "+line)
		}
	}
	return strings.Join(out, "\n")
}
