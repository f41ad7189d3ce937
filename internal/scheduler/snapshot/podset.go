package snapshot

import (
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// Matcher says which pods a term is about, by their namespaces and labels.
type Matcher struct {
	key        string
	namespaces []string        // sorted
	nsSelector labels.Selector // further namespaces, by their labels; nil: none
	selector   labels.Selector
}

// NewMatcher returns the matcher of the pods that selector selects in the
// namespaces, and in those that nsSelector (nil: none) selects.
func NewMatcher(namespaces []string, nsSelector, selector labels.Selector) *Matcher {
	m := &Matcher{namespaces: slices.Compact(slices.Sorted(slices.Values(namespaces))), nsSelector: nsSelector, selector: selector}
	var b strings.Builder
	b.WriteString(strings.Join(m.namespaces, ","))
	if nsSelector != nil {
		b.WriteString("+{" + nsSelector.String() + "}")
	}
	b.WriteString("/")
	if _, selectable := selector.Requirements(); !selectable {
		b.WriteString("<none>")
	}
	b.WriteString(selector.String())
	m.key = b.String()
	return m
}

// Selector is what the labels must match.
func (m *Matcher) Selector() labels.Selector { return m.selector }

// Matches reports whether the matcher is about pods with these labels.
func (m *Matcher) Matches(s *Snapshot, namespace string, set labels.Set) bool {
	if !m.selector.Matches(set) {
		return false
	}
	if _, ok := slices.BinarySearch(m.namespaces, namespace); ok {
		return true
	}
	return m.nsSelector != nil && m.nsSelector.Matches(s.namespaces[namespace])
}

// home is the one namespace that the matcher can be about; ok is false if there
// may be several.
func (m *Matcher) home() (string, bool) {
	if m.nsSelector == nil && len(m.namespaces) == 1 {
		return m.namespaces[0], true
	}
	return "", false
}

// PodSet counts the pods on each node that all of its matchers are about.
type PodSet struct {
	key      string
	matchers []*Matcher
	staying  bool    // terminating pods do not count
	count    []int32 // by node slot
	views    []*View
	used     uint64 // last sweep that saw it asked for
}

// PodSet returns the counts of the pods that all matchers are about; with
// staying, of those that are not being deleted.
func (s *Snapshot) PodSet(staying bool, matchers ...*Matcher) *PodSet {
	var b strings.Builder
	if staying {
		b.WriteString("staying ")
	}
	for _, m := range matchers {
		b.WriteString(m.key + "&")
	}
	key := b.String()
	ps := s.podSets[key]
	if ps == nil {
		ps = &PodSet{key: key, matchers: matchers, staying: staying}
		s.podSets[key] = ps
		s.eachClass(ps.matchers[0], func(c *Class) {
			if !ps.matches(s, c) {
				return
			}
			c.sets = append(c.sets, ps)
			for _, p := range c.pods {
				ps.pod(p, +1)
			}
		})
		s.byHome.sets.add(matchers[0], ps)
	}
	ps.used = s.epoch
	return ps
}

func (ps *PodSet) matches(s *Snapshot, c *Class) bool {
	for _, m := range ps.matchers {
		if !m.Matches(s, c.namespace, c.labels) {
			return false
		}
	}
	return true
}

// On is how many pods of the set run on a node.
func (ps *PodSet) On(n *Node) int32 {
	if int(n.slot) >= len(ps.count) {
		return 0
	}
	return ps.count[n.slot]
}

// pod counts a pod of a matching class in (+1) or out (-1).
func (ps *PodSet) pod(p *Pod, delta int32) {
	if ps.staying && p.Terminating {
		return
	}
	slot := p.node.slot
	for int(slot) >= len(ps.count) {
		ps.count = append(ps.count, 0)
	}
	ps.count[slot] += delta
	for _, v := range ps.views {
		if v.in.Has(p.node) {
			v.change(v.Topology.at(slot), delta)
		}
	}
}

// View is a PodSet's counts by the domains of a topology, over the nodes of a
// NodeSet only.
type View struct {
	Topology *Topology

	set *PodSet
	in  *NodeSet

	count []int32 // domain to pods
	nodes []int32 // domain to nodes of the NodeSet; 0: the domain does not exist for this view
	total int64

	// How many domains there are, and how many of them have n pods; min is
	// the lowest n with a domain.
	domains int
	having  []int32
	min     int32
}

// View returns ps by the domains of t among the nodes of in.
func (s *Snapshot) View(ps *PodSet, t *Topology, in *NodeSet) *View {
	for _, v := range ps.views {
		if v.Topology == t && v.in == in {
			return v
		}
	}
	v := &View{Topology: t, set: ps, in: in}
	ps.views = append(ps.views, v)
	in.views = append(in.views, v)
	for slot, has := range in.in {
		if has {
			v.addNode(int32(slot))
		}
	}
	return v
}

// In is the number of pods in a domain.
func (v *View) In(domain int32) int32 {
	if int(domain) >= len(v.count) {
		return 0
	}
	return v.count[domain]
}

// Total is the number of pods in all domains.
func (v *View) Total() int64 { return v.total }

// Domains is the number of domains that have a node.
func (v *View) Domains() int { return v.domains }

// Min is the lowest number of pods in a domain, and MaxInt32 if there is none.
func (v *View) Min() int32 {
	if v.domains == 0 {
		return math.MaxInt32
	}
	return v.min
}

func (v *View) addNode(slot int32) {
	d := v.Topology.at(slot)
	if d < 0 {
		return
	}
	for int(d) >= len(v.count) {
		v.count, v.nodes = append(v.count, 0), append(v.nodes, 0)
	}
	if v.nodes[d] == 0 {
		v.domains++
		v.have(v.count[d], +1)
	}
	v.nodes[d]++
	if int(slot) < len(v.set.count) {
		v.change(d, v.set.count[slot])
	}
}

func (v *View) removeNode(slot int32) {
	d := v.Topology.at(slot)
	if d < 0 {
		return
	}
	if int(slot) < len(v.set.count) {
		v.change(d, -v.set.count[slot])
	}
	v.nodes[d]--
	if v.nodes[d] == 0 {
		v.domains--
		v.have(v.count[d], -1)
	}
}

// change counts pods in or out of a domain (-1: none).
func (v *View) change(d, delta int32) {
	if d < 0 || delta == 0 {
		return
	}
	was := v.count[d]
	v.count[d] += delta
	v.total += int64(delta)
	v.have(was+delta, +1)
	v.have(was, -1)
}

// have counts a domain with n pods in or out.
func (v *View) have(n, delta int32) {
	for int(n) >= len(v.having) {
		v.having = append(v.having, 0)
	}
	v.having[n] += delta
	if delta > 0 {
		if n < v.min || v.having[v.min] == 0 {
			v.min = n
		}
		return
	}
	for v.domains > 0 && v.having[v.min] == 0 {
		v.min++
	}
}
