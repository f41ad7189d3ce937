package plugins

import (
	"slices"

	configv1 "k8s.io/kube-scheduler/config/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeAffinity refuses nodes that the node selector or the required node
// affinity does not match, and prefers those that the preferred one matches.
type nodeAffinity struct {
	refused, enforced *Reason
	added             *snapshot.AddedAffinity // of every pod of the profile; nil: none
	matched           *snapshot.NodeSet       // the nodes that match; nil: ask each node
}

func newNodeAffinity(i int, args *configv1.NodeAffinityArgs) *nodeAffinity {
	p := &nodeAffinity{
		refused:  lasting(i, "node(s) didn't match Pod's node affinity/selector"),
		enforced: lasting(i, "node(s) didn't match scheduler-enforced node affinity"),
	}
	if args != nil && args.AddedAffinity != nil {
		p.added = snapshot.NewAddedAffinity(args.AddedAffinity)
	}
	return p
}

func (*nodeAffinity) Name() string { return "NodeAffinity" }

func (p *nodeAffinity) PreFilter(c *Cycle) PreFilterResult {
	p.matched = nil
	r := c.Pod.Constraints.Required
	switch {
	case r == nil:
		return PreFilterResult{Skip: p.added == nil}
	case r.Names != nil: // a set of nodes kept for each daemon's pod would not pay
		return PreFilterResult{Nodes: r.Names}
	}
	p.matched = requiredNodes(c)
	return PreFilterResult{}
}

// requiredNodes is the nodes that the pod's node selector and required node
// affinity match.
func requiredNodes(c *Cycle) *snapshot.NodeSet {
	r := c.Pod.Constraints.Required
	return c.Snapshot.NodeSet("affinity "+r.Key, r.Matches)
}

func (p *nodeAffinity) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if p.added != nil && !p.added.Matches(n) {
		return p.enforced
	}
	r := c.Pod.Constraints.Required
	switch {
	case r == nil:
		return nil
	case p.matched != nil && p.matched.Has(n), p.matched == nil && r.Matches(n):
		return nil
	}
	return p.refused
}

func (p *nodeAffinity) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	preferred := c.Pod.Constraints.Preferred
	if p.added != nil {
		preferred = slices.Concat(p.added.Preferred, preferred)
	}
	if len(preferred) == 0 {
		return false
	}
	for i, n := range nodes {
		for j := range preferred {
			if preferred[j].Matches(n) {
				scores[i] += preferred[j].Weight
			}
		}
	}
	normalize(scores, false)
	return true
}

// Shared: pods of a shape ask the same of a node.
func (*nodeAffinity) Shared() Scope { return Scope{Filter: true} }

func (*nodeAffinity) Wakers() Events { return NodeAdded | NodeLabels }

func (p *nodeAffinity) Hint(c *Cycle, e *Event) bool {
	if e.Node == nil {
		return true
	}
	required := c.Pod.Constraints.Required
	return e.Node.Obj != nil && (p.added == nil || p.added.Matches(e.Node)) && (required == nil || required.Matches(e.Node))
}
