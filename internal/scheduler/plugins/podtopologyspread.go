package plugins

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// podTopologySpread keeps pods that belong together spread over topology
// domains: hard constraints refuse nodes, soft ones (and those that every pod
// of a service or controller has by default) prefer others.
type podTopologySpread struct {
	noLabel, skewed *Reason
	defaults        []snapshot.Spread // of pods without constraints, without matchers
	system          bool              // the defaults are upstream's own
	hard            []spreadView      // of the pod at hand
}

// spreadView is a hard constraint and its counts.
type spreadView struct {
	*snapshot.Spread
	view *snapshot.View
	self int32 // 1 if the pod itself counts
}

func newPodTopologySpread(i int, args *configv1.PodTopologySpreadArgs) *podTopologySpread {
	p := &podTopologySpread{
		defaults: defaultSpread, system: true,

		noLabel: lasting(i, "node(s) didn't match pod topology spread constraints (missing required label)"),
		skewed:  passing(i, "node(s) didn't match pod topology spread constraints"),
	}
	if args != nil && args.DefaultingType == configv1.ListDefaulting {
		p.defaults, p.system = nil, false
		for i := range args.DefaultConstraints {
			p.defaults = append(p.defaults, snapshot.NewSpread(&args.DefaultConstraints[i], nil))
		}
	}
	return p
}

// constraints are the pod's constraints, those that it has by default
// included.
func (p *podTopologySpread) constraints(c *Cycle) []snapshot.Spread {
	if own := c.Pod.Constraints.Spread; len(own) > 0 || len(p.defaults) == 0 {
		return own
	}
	m := c.Snapshot.DefaultSelector(c.Pod)
	if m == nil {
		return nil
	}
	all := slices.Clone(p.defaults)
	for i := range all {
		all[i].Matcher = m
	}
	return all
}

// mayRefuse reports whether constraints that every pod has by default can refuse nodes.
func (p *podTopologySpread) mayRefuse() bool {
	return slices.ContainsFunc(p.defaults, func(sp snapshot.Spread) bool { return sp.Hard })
}

func (*podTopologySpread) Name() string { return "PodTopologySpread" }

func (p *podTopologySpread) PreFilter(c *Cycle) PreFilterResult {
	p.hard = p.hard[:0]
	spread := c.Pod.Constraints.Spread
	if len(spread) == 0 && p.mayRefuse() {
		spread = p.constraints(c)
	}
	for i := range spread {
		if !spread[i].Hard {
			continue
		}
		sp := &spread[i]
		in := countedNodes(c, sp, keys(spread, true))
		v := spreadView{Spread: sp, view: c.Snapshot.View(spreadSet(c, sp), c.Snapshot.Topology(sp.TopologyKey), in)}
		if sp.Matcher.Selector().Matches(labelSet(c)) {
			v.self = 1
		}
		p.hard = append(p.hard, v)
	}
	return PreFilterResult{Skip: len(p.hard) == 0}
}

func (p *podTopologySpread) Filter(c *Cycle, n *snapshot.Node) *Reason {
	for i := range p.hard {
		h := &p.hard[i]
		d, ok := h.view.Topology.Domain(n)
		if !ok {
			return p.noLabel
		}
		if h.Matcher.Selector().Empty() { // it counts no pods
			continue
		}
		least := h.view.Min()
		if h.view.Domains() < int(h.MinDomains) {
			least = 0
		}
		if int64(h.view.In(d))+int64(h.self)-int64(least) > int64(h.MaxSkew) {
			return p.skewed
		}
	}
	return nil
}

// defaultSpread is upstream's default: soft, over nodes and zones.
var defaultSpread = []snapshot.Spread{
	{TopologyKey: corev1.LabelHostname, MaxSkew: 3, MinDomains: 1, HonorAffinity: true},
	{TopologyKey: corev1.LabelTopologyZone, MaxSkew: 5, MinDomains: 1, HonorAffinity: true},
}

// soft returns the pod's soft constraints. With all, only nodes that have the
// labels of all of them count.
func (p *podTopologySpread) soft(c *Cycle) (constraints []snapshot.Spread, all bool) {
	for _, sp := range p.constraints(c) {
		if !sp.Hard {
			constraints = append(constraints, sp)
		}
	}
	return constraints, !p.system || len(c.Pod.Constraints.Spread) > 0
}

func (p *podTopologySpread) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	constraints, all := p.soft(c)
	if len(constraints) == 0 {
		return false
	}
	var required []string
	if all {
		required = keys(constraints, false)
	}
	ignored := make([]bool, len(nodes)) // lack a label
	counted := len(nodes)
	for i, n := range nodes {
		for _, key := range required {
			if _, ok := n.Obj.Labels[key]; !ok && !ignored[i] {
				ignored[i] = true
				counted--
			}
		}
	}
	raw := make([]float64, len(nodes))
	for i := range constraints {
		addSpread(c, &constraints[i], &spreadScore{nodes: nodes, ignored: ignored, counted: counted, required: required, raw: raw})
	}
	return normalizeSpread(raw, ignored, scores)
}

// spreadScore is what one soft constraint adds its part to.
type spreadScore struct {
	nodes    []*snapshot.Node
	ignored  []bool // by node
	counted  int    // nodes that are not ignored
	required []string
	raw      []float64 // by node
}

// addSpread adds the number of matching pods in each node's domain, weighted so
// that a topology with many domains does not drown one with few.
func addSpread(c *Cycle, sp *snapshot.Spread, to *spreadScore) {
	set := spreadSet(c, sp)
	if sp.TopologyKey == corev1.LabelHostname {
		weight := math.Log(float64(to.counted + 2))
		for i, n := range to.nodes {
			if _, ok := n.Obj.Labels[sp.TopologyKey]; ok && !to.ignored[i] {
				to.raw[i] += float64(inSet(sp, set.On(n)))*weight + float64(sp.MaxSkew-1)
			}
		}
		return
	}
	t := c.Snapshot.Topology(sp.TopologyKey)
	v := c.Snapshot.View(set, t, countedNodes(c, sp, to.required))
	seen, domains := make([]bool, t.Len()), 0
	for i, n := range to.nodes {
		if d, ok := t.Domain(n); ok && !to.ignored[i] && !seen[d] {
			seen[d] = true
			domains++
		}
	}
	weight := math.Log(float64(domains + 2))
	for i, n := range to.nodes {
		if d, ok := t.Domain(n); ok && !to.ignored[i] {
			to.raw[i] += float64(inSet(sp, v.In(d)))*weight + float64(sp.MaxSkew-1)
		}
	}
}

// inSet is count, except that a selector that selects everything counts nothing.
func inSet(sp *snapshot.Spread, count int32) int32 {
	if sp.Matcher.Selector().Empty() {
		return 0
	}
	return count
}

// normalizeSpread turns few pods into high scores; ignored nodes get 0.
func normalizeSpread(raw []float64, ignored []bool, scores []int64) bool {
	low, high := int64(math.MaxInt64), int64(0)
	for i, r := range raw {
		if scores[i] = int64(math.Round(r)); !ignored[i] {
			low, high = min(low, scores[i]), max(high, scores[i])
		}
	}
	for i, s := range scores {
		switch {
		case ignored[i]:
			scores[i] = 0
		case high == 0:
			scores[i] = MaxScore
		default:
			scores[i] = MaxScore * (high + low - s) / high
		}
	}
	return true
}

// spreadSet is the pods that a constraint counts.
func spreadSet(c *Cycle, sp *snapshot.Spread) *snapshot.PodSet {
	return c.Snapshot.PodSet(true, sp.Matcher)
}

// keys are the topology keys of the hard or the soft constraints.
func keys(spread []snapshot.Spread, hard bool) (keys []string) {
	for i := range spread {
		if spread[i].Hard == hard {
			keys = append(keys, spread[i].TopologyKey)
		}
	}
	return keys
}

// Shared: pods of a shape have the same constraints of their own. What they have by default
// follows from their owners too.
func (p *podTopologySpread) Shared() Scope { return Scope{Pod: p.mayRefuse()} }

func (*podTopologySpread) Wakers() Events {
	return NodeAdded | NodeLabels | NodeTaints | NodeRemoved | PodAdded | PodRemoved
}

// Hint: the balance changes with nodes, and with pods that a constraint counts.
func (p *podTopologySpread) Hint(c *Cycle, e *Event) bool {
	if e.Pod == nil {
		return true
	}
	if e.Pod.Obj.Namespace != c.Pod.Obj.Namespace {
		return false
	}
	spread := p.constraints(c)
	for i := range spread {
		sp := &spread[i]
		if sp.Hard && sp.Matcher.Matches(c.Snapshot, e.Pod.Obj.Namespace, e.Pod.Obj.Labels) {
			return true
		}
	}
	return false
}
