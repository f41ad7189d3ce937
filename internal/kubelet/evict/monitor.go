package evict

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Reading is how much there is of something, in bytes, inodes or processes.
type Reading struct{ Available, Capacity int64 }

// Readings is one look at the node.
type Readings map[Signal]Reading

// Monitor remembers what readings have shown. Transition is how long a node's
// condition outlasts the last reading that called for it. Not for concurrent use.
type Monitor struct {
	Thresholds []Threshold
	Transition time.Duration

	seen map[v1.NodeConditionType]time.Time // when a reading last called for the condition
}

// Starved is a signal below its threshold.
type Starved struct {
	Signal    Signal
	Available int64
	Threshold int64
}

// Message is the beginning of what a pod is told that has to go.
func (s Starved) Message() string {
	return fmt.Sprintf("The node was low on resource: %s. ", s.Signal.Resource()) +
		fmt.Sprintf("Threshold quantity: %s, available: %s. ", s.Signal.quantity(s.Threshold), s.Signal.quantity(s.Available))
}

// Observe takes in a look at the node. It returns which conditions the node has
// now, and what runs out, what matters most first. What could not be read is
// neither.
func (m *Monitor) Observe(r Readings, now time.Time) (pressure map[v1.NodeConditionType]bool, starved []Starved) {
	if m.seen == nil {
		m.seen = map[v1.NodeConditionType]time.Time{}
	}
	for _, t := range m.Thresholds {
		reading, ok := r[t.Signal]
		if limit := t.of(reading.Capacity); ok && reading.Available < limit {
			starved = append(starved, Starved{t.Signal, reading.Available, limit})
			m.seen[t.Signal.Condition()] = now
		}
	}
	pressure = map[v1.NodeConditionType]bool{}
	for c, at := range m.seen {
		if at.Equal(now) || now.Sub(at) < m.Transition {
			pressure[c] = true
		}
	}
	return pressure, starved
}
