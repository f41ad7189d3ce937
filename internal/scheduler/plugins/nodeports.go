package plugins

import "github.com/kemudi/kemudi/internal/scheduler/snapshot"

// nodePorts refuses nodes where another pod has a host port that the pod needs.
type nodePorts struct{ refused *Reason }

func newNodePorts(i int) *nodePorts {
	return &nodePorts{
		refused: passing(i, "node(s) didn't have free ports for the requested pod ports"),
	}
}

func (*nodePorts) Name() string { return "NodePorts" }

func (p *nodePorts) PreFilter(c *Cycle) PreFilterResult {
	return PreFilterResult{Skip: len(c.Pod.HostPorts) == 0}
}

func (p *nodePorts) Filter(c *Cycle, n *snapshot.Node) *Reason {
	for _, want := range c.Pod.HostPorts {
		for taken := range n.HostPorts {
			if want.Conflicts(taken) {
				return p.refused
			}
		}
	}
	return nil
}

// Shared: pods of a shape ask the same of a node.
func (*nodePorts) Shared() Scope { return Scope{Filter: true} }

func (*nodePorts) Wakers() Events { return NodeAdded | PodRemoved }

func (p *nodePorts) Hint(c *Cycle, e *Event) bool {
	if e.Kind == PodRemoved && len(e.Pod.HostPorts) == 0 {
		return false
	}
	return passes(c, e, p)
}
