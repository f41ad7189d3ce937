package plugins

import "github.com/kemudi/kemudi/internal/scheduler/snapshot"

// nodeName refuses all nodes but the one that the spec names. (A pod that names
// its node is not scheduled by us at all, so this is for what-if questions.)
type nodeName struct{ refused *Reason }

func newNodeName(i int) *nodeName {
	return &nodeName{
		refused: lasting(i, "node(s) didn't match the requested node name"),
	}
}

func (*nodeName) Name() string { return "NodeName" }

func (p *nodeName) PreFilter(c *Cycle) PreFilterResult {
	return PreFilterResult{Skip: c.Pod.Obj.Spec.NodeName == ""}
}

func (p *nodeName) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if name := c.Pod.Obj.Spec.NodeName; name == "" || name == n.Name {
		return nil
	}
	return p.refused
}

// Shared: pods of a shape ask the same of a node.
func (*nodeName) Shared() Scope { return Scope{Filter: true} }

func (*nodeName) Wakers() Events { return NodeAdded }

func (p *nodeName) Hint(c *Cycle, e *Event) bool { return passes(c, e, p) }
