package plugins

import (
	"slices"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

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

// Hint: a pod that left helps if it had a port that is needed.
func (p *nodePorts) Hint(c *Cycle, e *Event) bool {
	if e.Kind == PodRemoved && !slices.ContainsFunc(e.Pod.HostPorts, func(had snapshot.HostPort) bool {
		return slices.ContainsFunc(c.Pod.HostPorts, had.Conflicts)
	}) {
		return false
	}
	return mightPass(c, e, p)
}
