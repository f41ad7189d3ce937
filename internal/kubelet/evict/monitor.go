package evict

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Reading is how much there is of something, in bytes, inodes or processes.
type Reading struct{ Available, Capacity int64 }

// Readings is one look at the node.
type Readings map[Signal]Reading

// Monitor remembers what readings have shown. Transition is how long a node's
// condition outlasts the last reading that called for it, Reclaim how much more than
// its threshold there must be of something that has run out, before that is over. Not
// for concurrent use.
type Monitor struct {
	Thresholds []Threshold
	Transition time.Duration
	Reclaim    []Threshold

	seen   map[v1.NodeConditionType]time.Time // when a reading last called for the condition
	passed map[Threshold]time.Time            // since when a threshold has been
}

// Starved is a signal below its threshold.
type Starved struct {
	Signal    Signal
	Available int64
	Threshold int64
	Soft      bool // who has to go has time for it
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
		m.seen, m.passed = map[v1.NodeConditionType]time.Time{}, map[Threshold]time.Time{}
	}
	for _, t := range m.Thresholds {
		reading, ok := r[t.Signal]
		if !ok {
			continue
		}
		since, before := m.passed[t]
		limit := t.of(reading.Capacity)
		switch {
		case before && reading.Available < limit+Held(m.Reclaim, t.Signal, reading.Capacity):
		case reading.Available < limit:
			since = now
			m.passed[t] = now
		default:
			delete(m.passed, t)
			continue
		}
		m.seen[t.Signal.Condition()] = now
		if now.Sub(since) >= t.Grace {
			starved = append(starved, Starved{t.Signal, reading.Available, limit, t.Grace > 0})
		}
	}
	slices.SortStableFunc(starved, func(a, b Starved) int { return slices.Index(order, a.Signal) - slices.Index(order, b.Signal) })
	pressure = map[v1.NodeConditionType]bool{}
	for c, at := range m.seen {
		if at.Equal(now) || now.Sub(at) < m.Transition {
			pressure[c] = true
		}
	}
	return pressure, starved
}
