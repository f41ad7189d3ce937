package plugins

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// nodeUnschedulable refuses nodes with spec.unschedulable (cordoned ones).
type nodeUnschedulable struct{ refused *Reason }

var cordoned = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

func newNodeUnschedulable(i int) *nodeUnschedulable {
	return &nodeUnschedulable{
		refused: lasting(i, "node(s) were unschedulable"),
	}
}

func (*nodeUnschedulable) Name() string { return "NodeUnschedulable" }

func (p *nodeUnschedulable) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if !n.Unschedulable || c.Pod.Constraints.ToleratesTaint(&cordoned) {
		return nil
	}
	return p.refused
}

// Shared: pods of a shape ask the same of a node.
func (*nodeUnschedulable) Shared() Scope { return Scope{Filter: true} }

func (*nodeUnschedulable) Wakers() Events { return NodeAdded | NodeTaints }

func (p *nodeUnschedulable) Hint(c *Cycle, e *Event) bool { return passes(c, e, p) }
