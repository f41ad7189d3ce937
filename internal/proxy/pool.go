package proxy

import (
	"net/netip"
	"slices"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// pool is the endpoints of a service port that connections are spread over. Each has a
// place, whose number is part of its key in the kernel: a change of one of a thousand
// endpoints must not move the others.
type pool struct {
	at     Key              // of the endpoints, without their places: what tells pools apart
	placed []netip.AddrPort // by place
	// Only of large pools: the same in order, and which place each has.
	sorted []netip.AddrPort
	place  map[netip.AddrPort]int
}

// findPool looks for the pool at a key, beginning where it most likely is.
func findPool(list []*pool, at Key, likely int) *pool {
	for i := range list {
		if p := list[(likely+i)%len(list)]; p.at == at {
			return p
		}
	}
	return nil
}

// largePool is how many endpoints a pool has that is worth an index.
const largePool = 64

// then is the pool that follows p, which may be nil, with the endpoints of want, in
// order. p is of no use for another.
func (p *pool) then(at Key, want []netip.AddrPort) *pool {
	now := &pool{at: at}
	switch {
	case len(want) <= largePool:
		now.placed = want
		if p != nil {
			now.placed = keepPlaces(p.placed, want)
		}
		return now
	case p == nil || p.place == nil:
		now.placed = want
		if p != nil {
			now.placed = keepPlaces(p.placed, want)
		}
		now.place = make(map[netip.AddrPort]int, len(want))
		for i, ep := range now.placed {
			now.place[ep] = i
		}
	default:
		now.placed, now.place = p.move(want), p.place
	}
	now.sorted = want
	return now
}

// move gives the endpoints of want their places: those that stay keep theirs, as long
// as there are that many.
func (p *pool) move(want []netip.AddrPort) []netip.AddrPort {
	gone, come := differ(p.sorted, want)
	placed := make([]netip.AddrPort, len(want))
	copy(placed, p.placed)
	var free []int
	for _, ep := range gone {
		if i := p.place[ep]; i < len(want) {
			free = append(free, i)
		}
		delete(p.place, ep)
	}
	for _, ep := range p.placed[min(len(want), len(p.placed)):] {
		if _, stays := p.place[ep]; stays {
			come = append(come, ep)
		}
	}
	for i := len(p.placed); i < len(want); i++ {
		free = append(free, i)
	}
	slices.Sort(free)
	slices.SortFunc(come, netip.AddrPort.Compare)
	for i, ep := range come {
		placed[free[i]], p.place[ep] = ep, free[i]
	}
	return placed
}

// differ says what of two lists in order only the first one has, and only the second.
func differ(a, b []netip.AddrPort) (gone, come []netip.AddrPort) {
	for len(a) > 0 && len(b) > 0 {
		switch order := a[0].Compare(b[0]); {
		case order == 0:
			a, b = a[1:], b[1:]
		case order < 0:
			gone, a = append(gone, a[0]), a[1:]
		default:
			come, b = append(come, b[0]), b[1:]
		}
	}
	return append(gone, a...), append(come, b...)
}

// elems are those of one place.
func (p *pool) elems(f nft.Family, place int) []table.Elem {
	at := p.at
	at.Index = uint32(place)
	to := p.placed[place]
	elems := []table.Elem{at.elem(f, Value{To: to})}
	if at.Set == StickyPicks {
		valid := Key{Set: StickyCluster, Addr: at.Addr, Proto: at.Proto, Port: at.Port, To: to}
		if at.Pool == poolOf(true) {
			valid.Set = StickyLocal
		}
		elems = append(elems, valid.elem(f, Value{}))
	}
	return elems
}

// has says whether the pool has just this at the place, for the other pool.
func (p *pool) has(place int, other *pool) bool {
	return p != nil && other != nil && place < len(p.placed) && place < len(other.placed) && p.placed[place] == other.placed[place]
}

// replacePool puts one pool of an owner in the place of another; either may be nil.
func (r *rules) replacePool(o *owner, before, now *pool) {
	if before != nil {
		for i := range before.placed {
			if !before.has(i, now) {
				for _, e := range before.elems(r.family, i) {
					r.Release(o, e.ID)
				}
			}
		}
	}
	if now != nil {
		for i := range now.placed {
			if !now.has(i, before) {
				for _, e := range now.elems(r.family, i) {
					r.Claim(o, e)
				}
			}
		}
	}
}
