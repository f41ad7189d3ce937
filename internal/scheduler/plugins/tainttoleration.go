package plugins

import "github.com/kemudi/kemudi/internal/scheduler/snapshot"

// taintToleration refuses nodes with a NoSchedule or NoExecute taint that the
// pod does not tolerate, and prefers nodes with fewer PreferNoSchedule taints.
type taintToleration struct{ refused *Reason }

func newTaintToleration(i int) *taintToleration {
	return &taintToleration{
		refused: lasting(i, "node(s) had untolerated taint(s)"),
	}
}

func (*taintToleration) Name() string { return "TaintToleration" }

func (p *taintToleration) Filter(c *Cycle, n *snapshot.Node) *Reason {
	if n.Taints == nil {
		return nil
	}
	if ok, _ := c.Pod.Constraints.Tolerates(n); ok {
		return nil
	}
	return p.refused
}

func (p *taintToleration) Score(c *Cycle, nodes []*snapshot.Node, scores []int64) bool {
	if !c.Snapshot.AnyTaints() {
		return false
	}
	differ := false
	for i, n := range nodes {
		_, scores[i] = c.Pod.Constraints.Tolerates(n)
		differ = differ || scores[i] != scores[0]
	}
	if differ {
		normalize(scores, true)
	}
	return differ
}

// Shared: pods of a shape ask the same of a node.
func (*taintToleration) Shared() Scope { return Scope{Filter: true} }

func (*taintToleration) Wakers() Events { return NodeAdded | NodeTaints }

func (p *taintToleration) Hint(c *Cycle, e *Event) bool { return passes(c, e, p) }
