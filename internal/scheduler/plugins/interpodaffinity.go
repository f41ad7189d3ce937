package plugins

import (
	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// interPodAffinity refuses nodes by the pods that run near them (in the same
// topology domain): those that the pod must have near, those it must not have
// near, and those that must not have it near. It prefers by the same rules.
type interPodAffinity struct {
	notNear, notApart, notWanted *Reason
	attraction                   int64 // what a running pod's required affinity adds to a score
	ownWishesOnly                bool  // pods without preferences do not care about those of others

	// About the pod at hand.
	near      []*snapshot.View // by term of Affinity: pods that all terms are about
	apart     []*snapshot.View // by term of AntiAffinity
	class     *snapshot.Class  // knows the running pods' terms about the pod
	selfMatch bool             // the pod satisfies its own affinity
}

func newInterPodAffinity(i int, args *configv1.InterPodAffinityArgs) *interPodAffinity {
	p := &interPodAffinity{
		attraction: 1,

		notNear:   lasting(i, "node(s) didn't match pod affinity rules"),
		notApart:  passing(i, "node(s) didn't match pod anti-affinity rules"),
		notWanted: passing(i, "node(s) didn't satisfy existing pods anti-affinity rules"),
	}
	if args != nil {
		p.ownWishesOnly = args.IgnorePreferredTermsOfExistingPods
		if args.HardPodAffinityWeight != nil {
			p.attraction = int64(*args.HardPodAffinityWeight)
		}
	}
	return p
}

func (*interPodAffinity) Name() string { return "InterPodAffinity" }

func (p *interPodAffinity) PreFilter(c *Cycle) PreFilterResult {
	own, s := c.Pod.Constraints, c.Snapshot
	p.near, p.apart, p.class, p.selfMatch = p.near[:0], p.apart[:0], s.Class(c.Pod), false
	if len(own.Affinity)+len(own.AntiAffinity)+len(p.class.Avoid()) == 0 {
		return PreFilterResult{Skip: true}
	}
	if len(own.Affinity) > 0 {
		matchers := make([]*snapshot.Matcher, len(own.Affinity))
		p.selfMatch = true
		for i, t := range own.Affinity {
			matchers[i] = t.Matcher
			p.selfMatch = p.selfMatch && t.Matcher.Matches(s, c.Pod.Obj.Namespace, c.Pod.Obj.Labels)
		}
		set := s.PodSet(false, matchers...)
		for _, t := range own.Affinity {
			p.near = append(p.near, view(s, set, t.TopologyKey))
		}
	}
	for _, t := range own.AntiAffinity {
		p.apart = append(p.apart, view(s, s.PodSet(false, t.Matcher), t.TopologyKey))
	}
	return PreFilterResult{}
}

// view counts a set's pods by domain over all nodes.
func view(s *snapshot.Snapshot, set *snapshot.PodSet, topologyKey string) *snapshot.View {
	return s.View(set, s.Topology(topologyKey), s.NodeSet("", nil))
}

func (p *interPodAffinity) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if !p.nearEnough(n) {
		return p.notNear
	}
	for _, v := range p.apart {
		if d, ok := v.Topology.Domain(n); ok && v.In(d) > 0 {
			return p.notApart
		}
	}
	for _, t := range p.class.Avoid() {
		if d, ok := t.Topology.Domain(n); ok && t.In(d) > 0 {
			return p.notWanted
		}
	}
	return nil
}

// nearEnough reports whether all required affinity terms hold on a node. The
// first pod of a group that is to be together may go anywhere.
func (p *interPodAffinity) nearEnough(n *snapshot.Node) bool {
	found, total := true, int64(0)
	for _, v := range p.near {
		d, ok := v.Topology.Domain(n)
		if !ok {
			return false
		}
		found = found && v.In(d) > 0
		total += v.Total()
	}
	return found || total == 0 && p.selfMatch
}

func (p *interPodAffinity) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	s := c.Snapshot
	prefer := s.Class(c.Pod).Prefer()
	if mine := len(c.Pod.Constraints.PreferredPods); mine+len(prefer) == 0 || mine == 0 && p.ownWishesOnly {
		return false
	}
	for _, t := range c.Pod.Constraints.PreferredPods {
		v := view(s, s.PodSet(false, t.Matcher), t.TopologyKey)
		if v.Total() == 0 {
			continue
		}
		for i, n := range nodes {
			if d, ok := v.Topology.Domain(n); ok {
				scores[i] += t.Weight * int64(v.In(d))
			}
		}
	}
	for _, t := range prefer {
		weight := int64(1)
		if t.Kind == snapshot.Attraction {
			weight = p.attraction
		}
		for i, n := range nodes {
			if d, ok := t.Topology.Domain(n); ok {
				scores[i] += t.In(d) * weight
			}
		}
	}
	return spreadOut(scores)
}

// spreadOut maps the lowest score to 0 and the highest to MaxScore; false if
// they are the same.
func spreadOut(scores []int64) bool {
	low, high := scores[0], scores[0]
	for _, s := range scores {
		low, high = min(low, s), max(high, s)
	}
	if low == high {
		return false
	}
	for i, s := range scores {
		scores[i] = int64(MaxScore * (float64(s-low) / float64(high-low)))
	}
	return true
}

// Shared: pods of a shape want the same near, and are wanted by the same.
func (*interPodAffinity) Shared() Scope { return Scope{} }

func (*interPodAffinity) Wakers() Events { return NodeAdded | NodeLabels | PodAdded | PodRemoved }

// Hint: a new pod can satisfy an affinity, a lost one an anti-affinity in
// either direction, and a node's labels anything.
func (p *interPodAffinity) Hint(c *Cycle, e *Event) bool {
	if e.Pod == nil {
		return true
	}
	own, s := c.Pod.Constraints, c.Snapshot
	about := func(terms []snapshot.PodTerm, other *snapshot.Pod) bool {
		for _, t := range terms {
			if t.Matcher.Matches(s, other.Obj.Namespace, other.Obj.Labels) {
				return true
			}
		}
		return false
	}
	if e.Kind == PodAdded {
		return len(own.Affinity) > 0 && about(own.Affinity, e.Pod)
	}
	return about(own.AntiAffinity, e.Pod) || about(own.Affinity, e.Pod) || about(e.Pod.Constraints.AntiAffinity, c.Pod)
}
