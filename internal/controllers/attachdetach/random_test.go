package attachdetach

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestAnyOrderOfEventsKeepsTheRules lets pods, nodes and an attacher do what they like, and in the end one node
// needs the volume and all are well: it has it then. Meanwhile A1 and A2 hold.
func TestAnyOrderOfEventsKeepsTheRules(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	attached, forced := 0, 0
	for range 500 {
		v := &volume{exclusive: rng.IntN(4) > 0, patient: rng.IntN(4) == 0}
		for _, node := range []string{"a", "b", "c"} {
			v.places = append(v.places, place{node: node, managed: true, ready: true})
		}
		for range 60 {
			happen(rng, &v.places[rng.IntN(3)])
			forced += v.obey(t, rng)
		}
		for i := range v.places { // all is well again
			p := &v.places[i]
			p.wanted, p.inUse, p.ready, p.outOfService = i == 0, false, true, false
		}
		for range 6 {
			forced += v.obey(t, rng)
			for i := range v.places {
				v.places[i].attacher()
			}
		}
		for i, p := range v.places {
			if want := map[bool]phase{true: done, false: absent}[i == 0]; p.phase != want {
				t.Fatalf("in the end node %s has phase %d, want %d: %+v", p.node, p.phase, want, v.places)
			}
		}
		attached++
	}
	if attached == 0 || forced == 0 {
		t.Errorf("%d volumes were attached in the end, %d taken from lost nodes: nothing was tested", attached, forced)
	}
}

// happen changes something about a node.
func happen(rng *rand.Rand, p *place) {
	switch rng.IntN(7) {
	case 0:
		p.wanted = !p.wanted
	case 1: // only what is attached comes into use
		p.inUse = p.inUse || p.phase == done
	case 2:
		p.inUse = false
	case 3:
		p.ready = !p.ready
	case 4:
		p.outOfService = rng.IntN(4) == 0
	default:
		p.attacher()
	}
	if p.unwanted += time.Duration(rng.IntN(4)) * time.Minute; p.wanted {
		p.unwanted = 0
	}
}

// attacher does what it was asked for.
func (p *place) attacher() {
	switch p.phase {
	case asked:
		p.phase = done
	case leaving:
		p.phase, p.inUse = absent, false
	}
}

// obey does what is to be done, and returns how often a node lost what it might have used.
func (v *volume) obey(t *testing.T, rng *rand.Rand) (forced int) {
	before := make([]place, len(v.places))
	copy(before, v.places)
	steps, _ := v.next()
	copy(v.places, before) // what it has noted for itself is its own
	for _, s := range steps {
		at := -1
		for i := range v.places {
			if v.places[i].node == s.node {
				at = i
			}
		}
		p := &v.places[at]
		switch s.act {
		case attach:
			for _, o := range v.places {
				if v.exclusive && o.phase != absent {
					t.Fatalf("%s is to have what %s has: %+v", s.node, o.node, before)
				}
			}
			p.phase = asked
		case detach, detachLost, detachBroken:
			lost := s.act == detachLost && !p.ready && !v.patient && p.unwanted >= lostAfter || s.act == detachBroken && p.outOfService
			if p.wanted || p.inUse && !lost {
				t.Fatalf("%s is to lose what it may use (%d): %+v", s.node, s.act, before)
			}
			if p.inUse {
				forced++
			}
			p.phase = leaving
			if rng.IntN(2) == 0 {
				p.attacher()
			}
		case tellElsewhere:
			p.told = true
		}
	}
	return forced
}
