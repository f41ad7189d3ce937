package devices

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// kinds tells devices apart that a hard search cannot swap for each other.
type kinds struct {
	byDevice map[*device]int
	byText   map[string]int
}

func (k *kinds) reset() {
	clear(k.byDevice)
	clear(k.byText)
}

// kindOf is the kind of a device: two of the same kind are meant and tolerated by the same
// requests, say the same about all attributes that constraints are about, and consume the same
// counters. Where one of them has failed the other does too, if whoever asks takes it away
// from others. A device of which parts can be had is of its own kind.
func (s *search) kindOf(d *device) int {
	if k, ok := s.kinds.byDevice[d]; ok {
		return k
	}
	if s.kinds.byDevice == nil {
		s.kinds = kinds{byDevice: map[*device]int{}, byText: map[string]int{}}
	}
	text := s.describe(d)
	k, ok := s.kinds.byText[text]
	if !ok {
		k = len(s.kinds.byText)
		s.kinds.byText[text] = k
	}
	s.kinds.byDevice[d] = k
	return k
}

func (s *search) describe(d *device) string {
	if d.multiple || d.use.taken() {
		return "one " + d.id.String()
	}
	var b strings.Builder
	for i := range s.claims {
		c := &s.claims[i]
		for j := range c.requests {
			s.describeFor(&b, &c.requests[j], d)
		}
		for j := range c.constraints {
			v, ok := d.attribute(c.constraints[j].attribute)
			fmt.Fprintf(&b, " %v %v", v, ok)
		}
	}
	for i := range d.ConsumesCounters {
		x := &d.ConsumesCounters[i]
		fmt.Fprintf(&b, " %s %s", d.pool.poolID, x.CounterSet)
		for _, name := range slices.Sorted(maps.Keys(x.Counters)) {
			c := x.Counters[name]
			fmt.Fprintf(&b, " %s=%s", name, c.Value.String())
		}
	}
	return b.String()
}

// describeFor says whether a request, or which of its alternatives, is about a device.
func (s *search) describeFor(b *strings.Builder, r *request, d *device) {
	for i := range r.alternatives {
		s.describeFor(b, &r.alternatives[i], d)
	}
	if r.alternatives == nil {
		fmt.Fprintf(b, " %v %v %v", s.means(r, d), d.tolerated(r.tolerations), r.holds(d))
	}
}
