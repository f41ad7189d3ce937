package devices

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// MaxSteps is how many devices a search for one node looks at, at most.
const MaxSteps = 1 << 18

// hard is after how many steps a search begins to remember what has failed.
const hard = 1 << 9

// What a node is refused for.
const (
	cannot = Refusal("cannot allocate all claims")
	broken = Refusal("invalid resource pools were encountered")
)

// errTooLong is the end of a search that has taken its steps: whether the node would do is not known.
var errTooLong = errors.New("timed out trying to allocate devices")

// search looks for devices for a plan on a node. It is scratch, reused from search
// to search.
type search struct {
	inventory *Inventory
	node      *corev1.Node
	claims    []claim

	pools   []*pool
	devices []*device // that the node can use, in order
	partial *pool     // one that is not published completely; nil: none
	invalid *pool     // one that contradicts itself; nil: none

	chosen []choice
	counts []int // devices chosen so far, by claim
	alts   []int // which alternatives were chosen, in the order of the requests that have some; -1: none yet
	steps  int
	most   int
	easy   int     // so many steps are taken without remembering what has failed
	why    Refusal // of what was found in vain; empty: nothing worth telling
	err    error   // ends the search
	kinds  kinds
}

// choice is a device for a request.
type choice struct {
	claim    int
	request  *request
	device   *device
	portions []portion
}

// Try looks whether a node can serve a plan, in at most so many steps. It returns how much the
// alternatives that would be chosen are preferred. A Refusal says why
// the node cannot; any other error, that something is wrong with an expression.
func (v *Inventory) Try(p *Plan, n *corev1.Node, steps int) (preference int64, err error) {
	s := &v.search
	err = s.run(p, n, steps)
	for _, i := range s.alts {
		preference += int64(resourcev1.FirstAvailableDeviceRequestMaxSize - i)
	}
	s.end()
	return preference, err
}

// run searches. What was found stays until end is called.
func (s *search) run(p *Plan, n *corev1.Node, steps int) error {
	s.inventory.settle()
	s.node, s.claims = n, p.claims
	s.pools, s.devices, s.partial, s.invalid = s.inventory.reaching(n.Name, s.pools[:0]), s.devices[:0], nil, nil
	s.chosen, s.alts, s.counts = s.chosen[:0], s.alts[:0], append(s.counts[:0], make([]int, len(p.claims))...)
	s.steps, s.most, s.why, s.err = 0, min(steps, MaxSteps), "", nil
	s.kinds.reset()
	s.collect()
	if s.request(0, 0) {
		return nil
	}
	switch {
	case s.err != nil:
		return s.err
	case s.why != "":
		return s.why
	case s.invalid != nil:
		return broken
	}
	return cannot
}

// end gives back what the search has chosen (D1).
func (s *search) end() {
	for len(s.chosen) > 0 {
		s.giveBack()
	}
	s.node, s.claims = nil, nil
}

// collect finds the devices that the node can use.
func (s *search) collect() {
	for _, p := range s.pools {
		for _, x := range p.current {
			if !x.has(s.node) {
				continue
			}
			switch {
			case p.incomplete:
				s.partial = p
			case p.invalid != "":
				s.invalid = p
			default:
				s.devices = append(s.devices, x.devices...)
			}
		}
	}
}

// request serves a request of a claim and all that come after it.
func (s *search) request(claim, i int) bool {
	for claim < len(s.claims) && i == len(s.claims[claim].requests) {
		claim, i = claim+1, 0
	}
	if claim == len(s.claims) {
		return true
	}
	r := &s.claims[claim].requests[i]
	if r.alternatives == nil {
		return s.serve(claim, i, r)
	}
	for j := range r.alternatives {
		s.alts = append(s.alts, j)
		if s.serve(claim, i, &r.alternatives[j]) {
			return true
		}
		if s.err != nil {
			return false
		}
		s.alts = s.alts[:len(s.alts)-1]
	}
	return false
}

// serve finds devices for r, which is the request with the index i or an alternative of it,
// and for all that comes after it.
func (s *search) serve(claim, i int, r *request) bool {
	if r.all {
		return s.serveAll(claim, i, r)
	}
	if s.counts[claim]+r.count > resourcev1.AllocationResultsMaxSize {
		return false
	}
	return s.pick(claim, i, r, place{left: r.count})
}

// place is where a search for a request stands.
type place struct {
	left int // devices that are to be found yet
	from int // where among the devices, so that no set of them is tried twice
}

func (s *search) pick(claim, i int, r *request, at place) bool {
	if at.left == 0 {
		return s.request(claim, i+1)
	}
	var failed []int
	for j := at.from; j+at.left <= len(s.devices); j++ {
		if s.steps++; s.steps > s.most {
			s.err = fmt.Errorf("node %s: %w", s.node.Name, errTooLong)
			return false
		}
		d := s.devices[j]
		if len(failed) > 0 && slices.Contains(failed, s.kindOf(d)) {
			continue
		}
		if !s.take(claim, r, d) {
			if s.err != nil {
				return false
			}
			continue
		}
		if s.pick(claim, i, r, place{at.left - 1, j + 1}) {
			return true
		}
		s.giveBack()
		if s.err != nil {
			return false
		}
		if s.steps > s.easy && !r.admin {
			failed = append(failed, s.kindOf(d))
		}
	}
	return false
}

// serveAll takes all devices that a request means, at least one.
func (s *search) serveAll(claim, i int, r *request) bool {
	name := nameOf(s.claims[claim].obj)
	switch {
	case s.partial != nil:
		s.why = Refusal(fmt.Sprintf("claim %s, request %s: asks for all devices, but resource pool %s is currently being updated", name, r.name, s.partial.poolID))
		return false
	case s.invalid != nil:
		s.why = Refusal(fmt.Sprintf("claim %s, request %s: asks for all devices, but resource pool %s is currently invalid", name, r.name, s.invalid.poolID))
		return false
	}
	before := len(s.chosen)
	for _, d := range s.devices {
		if s.steps++; s.steps > s.most {
			s.err = fmt.Errorf("node %s: %w", s.node.Name, errTooLong)
		} else if means := s.means(r, d); means && !r.holds(d) {
			continue // too small to be meant
		} else if means && s.counts[claim] < resourcev1.AllocationResultsMaxSize && s.take(claim, r, d) || !means && s.err == nil {
			continue
		}
		s.giveBackTo(before)
		return false
	}
	if len(s.chosen) > before && s.request(claim, i+1) {
		return true
	}
	s.giveBackTo(before)
	return false
}

// holds reports whether a device has as much as a request asks for, whoever uses it.
func (r *request) holds(d *device) bool {
	for name, asked := range r.capacity {
		c, ok := d.capacity(string(name))
		if !ok {
			return false
		}
		if amount, ok := portionOf(&c, &asked); !ok || amount.Cmp(c.Value) > 0 {
			return false
		}
	}
	return true
}

func (s *search) giveBackTo(n int) {
	for len(s.chosen) > n {
		s.giveBack()
	}
}

// means reports whether a request is about a device.
func (s *search) means(r *request, d *device) bool {
	if d.reach != nil && !d.reach.has(s.node) {
		return false
	}
	for i := range r.selectors {
		x := &r.selectors[i]
		ok, err := s.inventory.matches(x.expression, d)
		if err != nil {
			s.err = fmt.Errorf("%s: selector #%d on device %s: CEL runtime error: %w", x.of, x.index, d.id, err)
		}
		if !ok {
			return false
		}
	}
	return true
}

// take chooses a device for a request, if that can be.
func (s *search) take(claim int, r *request, d *device) bool {
	u := d.use
	if r.admin {
		if slices.Contains(u.trying, claim) {
			return false
		}
	} else if u.whole > 0 || len(u.trying) > 0 || u.shares > 0 && !d.multiple {
		return false // D2
	}
	if !s.means(r, d) || !d.tolerated(r.tolerations) {
		return false
	}
	var portions []portion
	if d.multiple || r.capacity != nil {
		var ok bool
		if portions, ok = r.portions(d, nil); !ok {
			return false // D3
		}
	}
	if d.counted(r) && !d.pool.remaining().consume(d, +1) { // D3
		d.pool.left.consume(d, -1)
		return false
	}
	bound := s.claims[claim].constraints
	for n, c := range r.bound {
		if !bound[c].add(d) {
			for _, c := range r.bound[:n] {
				bound[c].remove()
			}
			if d.counted(r) {
				d.pool.left.consume(d, -1)
			}
			return false
		}
	}
	if d.multiple {
		if !r.admin {
			u.parts++
			for _, x := range portions {
				u.consumed.add(x.name, x.amount, +1)
			}
		}
	} else {
		u.trying = append(u.trying, claim)
		portions = nil
	}
	s.counts[claim]++
	s.chosen = append(s.chosen, choice{claim, r, d, portions})
	return true
}

// counted reports whether the counters of a device count for a request: not for
// admin access, and for one of which several have parts only for the first.
func (d *device) counted(r *request) bool {
	return len(d.ConsumesCounters) > 0 && !r.admin && d.use.shares+d.use.parts == 0
}

// giveBack undoes the last take.
func (s *search) giveBack() {
	last := len(s.chosen) - 1
	x := s.chosen[last]
	s.chosen[last] = choice{}
	s.chosen = s.chosen[:last]
	s.counts[x.claim]--
	d := x.device
	if !d.multiple {
		d.use.trying = d.use.trying[:len(d.use.trying)-1]
	} else if !x.request.admin {
		d.use.parts--
		for _, p := range x.portions {
			d.use.consumed.add(p.name, p.amount, -1)
		}
	}
	for _, c := range x.request.bound {
		s.claims[x.claim].constraints[c].remove()
	}
	if d.counted(x.request) {
		d.pool.left.consume(d, -1)
	}
}
