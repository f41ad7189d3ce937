package scheduler

import (
	"math"
	"slices"

	"github.com/kemudi/kemudi/internal/scheduler/plugins"
	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// memosKept bounds the shapes of pods of which a cycle remembers anything.
const memosKept = 16

// memo is what a cycle has found out about the pods of one shape and need not find out
// again before the node or the snapshot has another edition (B6).
type memo struct {
	used     uint64    // decision that asked for it last
	nodes    []verdict // by slot
	outcomes []outcome // by slot; empty: no pod of the shape has tried to preempt
	standing standing
}

// verdict is what the plugins that look at nothing but the node say of it.
type verdict struct {
	edition uint64          // of the node
	why     *plugins.Reason // nil: the pod may go there as far as they are concerned
	score   int64           // the sum of what they give; unscored: they were not asked
}

const unscored = math.MinInt64

// outcome is what preemption finds on a node: a candidate, or why there is none.
type outcome struct {
	edition, budgets uint64
	cand             *candidate
	why              *plugins.Reason
}

// standing is the setback of a pod for which nothing could be done. All pods of its shape have
// the same.
type standing struct {
	edition, budgets uint64 // of the snapshot; 0: there is none
	setback          setback
}

// memos are by shape.
type memos struct {
	byShape map[*snapshot.Shape]*memo
	turn    uint64
}

// of returns what is remembered for pods of a shape; nil if it is not worth it: no other pod
// had the shape so far.
func (m *memos) of(sh *snapshot.Shape, slots int) *memo {
	if sh == nil || sh.Pods < 2 {
		return nil
	}
	m.turn++
	x := m.byShape[sh]
	if x == nil {
		x = m.make(sh)
	}
	x.used = m.turn
	x.nodes = reach(x.nodes, slots)
	return x
}

// make takes the place of the memo that was used least recently if there are many.
func (m *memos) make(sh *snapshot.Shape) *memo {
	if m.byShape == nil {
		m.byShape = map[*snapshot.Shape]*memo{}
	}
	x := &memo{}
	if len(m.byShape) == memosKept {
		var oldest *snapshot.Shape
		for other, y := range m.byShape {
			if oldest == nil || y.used < m.byShape[oldest].used {
				oldest = other
			}
		}
		old := m.byShape[oldest]
		clear(old.nodes)
		x.nodes = old.nodes
		delete(m.byShape, oldest)
	}
	m.byShape[sh] = x
	return x
}

// forget forgets everything that was remembered.
func (c *cycle) forget() {
	c.memo, c.alike, c.memos, c.preempts = nil, false, memos{}, preempts{}
}

// reach makes a list by slot long enough.
func reach[T any](list []T, slots int) []T {
	if len(list) >= slots {
		return list
	}
	return slices.Grow(list, slots-len(list))[:slots]
}

// remembered returns the verdict of the present state of a node, which may have to be filled in; nil if
// there is none that pods of the shape share: those that hold a place there make a difference.
func (c *cycle) remembered(n *snapshot.Node) *verdict {
	if c.memo == nil || len(n.Nominated) > 0 && !c.sharesHeld(n) {
		return nil
	}
	return &c.memo.nodes[n.Slot()]
}

// sharesHeld reports whether the pods that hold a place on a node are the same to all pods of the
// shape: the pod is none of them, and they take no more than their part of the node.
func (c *cycle) sharesHeld(n *snapshot.Node) bool {
	if c.local < len(c.filters) || c.pod.Pod.Nominated() == n {
		return false
	}
	for _, p := range n.Nominated {
		if len(p.Constraints.AntiAffinity) > 0 {
			return false
		}
	}
	return true
}

// standing returns the setback of the pod at hand if it is that of the last pod of its shape, for which
// nothing could be done and since which nothing has changed; nil: it is not.
func (c *cycle) standing() *setback {
	if !c.alike || c.pod.Pod.Nominated() != nil {
		return nil
	}
	if s := &c.memo.standing; s.edition == c.snapshot.Edition() && s.edition != 0 && s.budgets == c.budgets.edition {
		return &s.setback
	}
	return nil
}

// stands notes the setback of the pod at hand, for which nothing could be done.
func (c *cycle) stands(s setback) {
	if c.alike && c.pod.Pod.Nominated() == nil {
		c.memo.standing = standing{edition: c.snapshot.Edition(), budgets: c.budgets.edition, setback: s}
	}
}

// outcomeOn is victimsOn, remembered where it follows from the node and the budgets alone.
func (c *cycle) outcomeOn(n *snapshot.Node) (*candidate, *plugins.Reason) {
	if !c.alike || c.local < len(c.filters) || len(n.Nominated) > 0 && !c.sharesHeld(n) {
		return c.victimsOn(n)
	}
	m := c.memo
	m.outcomes = reach(m.outcomes, len(m.nodes))
	o := &m.outcomes[n.Slot()]
	if o.edition != n.Edition || o.budgets != c.budgets.edition {
		o.cand, o.why = c.victimsOn(n)
		o.edition, o.budgets = n.Edition, c.budgets.edition
	}
	return o.cand, o.why
}
