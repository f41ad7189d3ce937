package plugins

import "github.com/kemudi/kemudi/internal/scheduler/snapshot"

// nodeAffinity refuses nodes that the node selector or the required node
// affinity does not match, and prefers those that the preferred one matches.
type nodeAffinity struct {
	refused *Reason
	matched *snapshot.NodeSet // the nodes that match; nil: ask each node
}

func newNodeAffinity(i int) *nodeAffinity {
	return &nodeAffinity{
		refused: lasting(i, "node(s) didn't match Pod's node affinity/selector"),
	}
}

func (*nodeAffinity) Name() string { return "NodeAffinity" }

func (p *nodeAffinity) PreFilter(c *Cycle) PreFilterResult {
	p.matched = nil
	r := c.Pod.Constraints.Required
	switch {
	case r == nil:
		return PreFilterResult{Skip: true}
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

func (*nodeAffinity) Wakers() Events { return NodeAdded | NodeLabels }

func (p *nodeAffinity) Hint(c *Cycle, e *Event) bool {
	return e.Node == nil || e.Node.Obj != nil && (c.Pod.Constraints.Required == nil || c.Pod.Constraints.Required.Matches(e.Node))
}
