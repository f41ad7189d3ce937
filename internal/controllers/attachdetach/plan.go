package attachdetach

import (
	"slices"
	"time"
)

const (
	// lostAfter is how long a node that is not ready keeps a volume that no pod needs but
	// which it may still use.
	lostAfter = 6 * time.Minute
	// patience is how long an attacher may be silent before the pods are told.
	patience = 2 * time.Minute
)

// phase is how far the attachment of a volume to a node has come.
type phase int

const (
	absent  phase = iota
	asked         // for
	done          // it is attached
	leaving       // it was told to end
)

// place is a node on which a volume is needed, or to which it is attached.
type place struct {
	node   string
	wanted bool // a pod of the node needs it
	phase  phase

	// Of the node.
	managed      bool // it is there, and leaves attaching to this controller
	inUse        bool // it may use the volume, or nothing is known of it
	ready        bool
	outOfService bool

	// What has been so far.
	unwanted time.Duration // how long no pod has needed what is attached
	silent   time.Duration // how long nothing was heard, or told, of what is to become of it
	news     string        // what the attacher says of its failure and was not told yet
	awaited  bool          // that it is attached was not told yet
	told     bool          // that another node has it was told
}

// act is what is done about a place.
type act int

const (
	attach        act = iota // ask for it
	detach                   // if the node does not use it
	detachLost               // whether it does or not: it has been silent for too long
	detachBroken             // likewise: it is out of service
	tellAttached             // to the pods, as all that is told
	tellFailed               // what the attacher says
	tellSilent               // that it says nothing
	tellLeaving              // that an earlier attachment must go first
	tellElsewhere            // that another node has it
)

// step is one thing to be done.
type step struct {
	act  act
	node string
}

// volume is one volume on all nodes that it is about. Those that come first are served first.
type volume struct {
	exclusive bool // only one node may have it at a time
	unneeded  bool // its driver attaches nothing
	patient   bool // no node is ever taken for lost
	places    []place
}

// next is what is to be done now, and in how long at the latest it must be looked at again; 0: at the next change.
func (v *volume) next() (steps []step, again time.Duration) {
	later := func(d time.Duration) {
		if again == 0 || d < again {
			again = max(d, time.Nanosecond)
		}
	}
	for i := range v.places {
		p := &v.places[i]
		wanted := p.wanted && !v.unneeded
		switch {
		case p.phase == absent && wanted:
			if a, ok := v.begin(p); ok {
				steps = append(steps, step{a, p.node})
			}
		case p.phase == done && wanted && p.awaited:
			steps = append(steps, step{tellAttached, p.node})
		case p.phase == asked && wanted && p.news != "":
			steps = append(steps, step{tellFailed, p.node})
			later(patience)
		case (p.phase == asked || p.phase == leaving) && wanted:
			if p.silent < patience {
				later(patience - p.silent)
				continue
			}
			later(patience)
			if p.phase == asked {
				steps = append(steps, step{tellSilent, p.node})
			} else {
				steps = append(steps, step{tellLeaving, p.node})
			}
		case (p.phase == asked || p.phase == done) && !wanted:
			if a, ok := v.end(p, later); ok {
				steps = append(steps, step{a, p.node})
			}
		}
	}
	return steps, again
}

// begin says what to do about a place that needs the volume and does not have it (A1); ok is false for nothing.
func (v *volume) begin(p *place) (a act, ok bool) {
	if !p.managed {
		return 0, false
	}
	if v.exclusive && slices.ContainsFunc(v.places, func(o place) bool { return o.phase != absent }) {
		// That it is about to be attached there, or to be detached, is no news: it may come to nothing, or be over soon.
		stays := slices.ContainsFunc(v.places, func(o place) bool { return o.phase == done && (o.wanted || o.inUse) })
		return tellElsewhere, stays && !p.told
	}
	p.phase = asked // for those that come after it
	return attach, true
}

// end says what to do about a place that does not need what it has (A2); ok is false for nothing now.
func (v *volume) end(p *place, later func(time.Duration)) (a act, ok bool) {
	switch {
	case p.outOfService && p.inUse:
		return detachBroken, true
	case !p.inUse:
		return detach, true
	case p.ready || v.patient:
		return 0, false
	case p.unwanted < lostAfter:
		later(lostAfter - p.unwanted)
		return 0, false
	}
	return detachLost, true
}
