package answer

import (
	"math/bits"
	"sync/atomic"
)

// SentBounds are the upper bounds of the classes that [Sent] counts events in, in bytes; one more is for those above.
var SentBounds = [...]float64{1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10}

// Sent counts the events of watches by their sizes. Many watches share one: an event costs two additions, whatever is
// shown of them later.
type Sent struct {
	classes [len(SentBounds) + 1]atomic.Uint64
	bytes   atomic.Uint64
}

// add counts an event of so many bytes.
func (s *Sent) add(size int) {
	s.classes[min(bits.Len(uint(max(size-1, 0))>>10), len(SentBounds))].Add(1)
	s.bytes.Add(uint64(size))
}

// Totals are the events, their bytes, and how many were not above each bound.
func (s *Sent) Totals() (events, bytes uint64, below map[float64]uint64) {
	below = make(map[float64]uint64, len(SentBounds))
	for i := range s.classes {
		events += s.classes[i].Load()
		if i < len(SentBounds) {
			below[SentBounds[i]] = events
		}
	}
	return events, s.bytes.Load(), below
}
