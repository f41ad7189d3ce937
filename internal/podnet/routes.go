package podnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/vishvananda/netlink"
)

// Routes are the ways to the pods of other nodes: by a route where the node is a
// neighbour, by VXLAN elsewhere (Options.Mode). What earlier processes have made and is still
// right stays as it is, so that no packet is lost by a restart.
//
// Methods may be called by several goroutines, each on the network namespace of New.
// What fails is tried again while [Network.Run] runs, and when links, addresses or
// routes of this machine change.
type Routes struct {
	o     *Options
	nl    *netlink.Handle
	watch *moves
	open  atomic.Bool   // there is a VXLAN device
	turn  chan struct{} // one token: who has it may use what follows
	again chan struct{} // one token: something is to be tried again

	peers  map[string]Peer
	held   map[string][]place // of each peer, and of nobody ("")
	claims map[place][]claim  // of several, the last one counts
	asked  map[int]netlink.LinkAttrs
	have   *kernel
	stale  bool         // have may be wrong, or is not read yet
	pruned bool         // what nobody claims is to go
	touch  func() error // is called before the kernel changes something; its errors are as if that had failed
}

// claim is what a peer wants in a place.
type claim struct {
	peer string
	content
}

func newRoutes(o *Options, nl *netlink.Handle, watch *moves) *Routes {
	r := &Routes{
		o: o, nl: nl, watch: watch, turn: make(chan struct{}, 1), again: make(chan struct{}, 1),
		peers: map[string]Peer{}, held: map[string][]place{}, claims: map[place][]claim{}, asked: map[int]netlink.LinkAttrs{},
		have: &kernel{}, stale: true, touch: func() error { return nil },
	}
	r.turn <- struct{}{}
	return r
}

// Update makes the ways to a peer what they ought to be. An error is for people;
// the caller need not try again.
func (r *Routes) Update(ctx context.Context, name string, p Peer) error {
	return r.inTurn(ctx, func() error {
		if len(r.peers) == 0 {
			r.claim("", r.o.refused())
		}
		if err := r.read(); err != nil {
			return named(name, err)
		}
		old := r.peers[name]
		r.peers[name] = p
		want, err := r.lead(p)
		changed := slices.Clone(r.held[""])
		if len(want) > 0 || err == nil || !old.Equal(p) {
			changed = append(changed, r.claim(name, want)...)
		}
		return named(name, errors.Join(err, r.sync(changed)))
	})
}

// Delete removes the ways to a peer. What is sent to its pods from then on is
// refused.
func (r *Routes) Delete(ctx context.Context, name string) error {
	return r.inTurn(ctx, func() error {
		delete(r.peers, name)
		return named(name, r.sync(r.claim(name, nil)))
	})
}

// Prune removes what no Update since the start has asked for: what an earlier
// process left. Call it when all peers are known.
func (r *Routes) Prune(ctx context.Context) error {
	return r.inTurn(ctx, func() error {
		r.pruned, r.stale = true, true
		if err := r.read(); err != nil {
			return err
		}
		return r.sync(slices.AppendSeq(slices.Collect(maps.Keys(r.have.has)), maps.Keys(r.claims)))
	})
}

// refresh looks anew at the ways to all peers, and at what the kernel has.
func (r *Routes) refresh(ctx context.Context) error {
	return r.inTurn(ctx, func() error {
		clear(r.asked)
		r.stale = true
		if len(r.peers) == 0 && !r.pruned {
			return nil
		}
		if err := r.read(); err != nil {
			return err
		}
		var failed []error
		for _, name := range slices.Sorted(maps.Keys(r.peers)) {
			want, err := r.lead(r.peers[name])
			if err != nil {
				failed = append(failed, named(name, err))
			}
			if len(want) > 0 || err == nil {
				r.claim(name, want) // otherwise what was right may be so again
			}
		}
		all := slices.Collect(maps.Keys(r.claims))
		if r.pruned {
			all = slices.AppendSeq(all, maps.Keys(r.have.has))
		}
		return errors.Join(append(failed, r.sync(all))...)
	})
}

// vxlanPort is the port to which other nodes send; 0: there is no need for one.
func (r *Routes) vxlanPort() uint16 {
	if r.open.Load() {
		return r.o.VXLAN.Port
	}
	return 0
}

// inTurn calls f when nobody else uses the fields, and sees to it that what has
// failed is tried again.
func (r *Routes) inTurn(ctx context.Context, f func() error) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.turn:
	}
	defer func() {
		r.open.Store(len(r.have.devices) > 0)
		r.turn <- struct{}{}
	}()
	err := f()
	if err != nil {
		select {
		case r.again <- struct{}{}:
		default: // that is known already
		}
	}
	return err
}

func named(peer string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ways to the pods of node %s: %w", peer, err)
}

// lead asks the kernel for the ways to a peer, and says what it must have for them.
func (r *Routes) lead(p Peer) (map[place]content, error) {
	var (
		list   []way
		failed []error
	)
	for _, a := range p.Addrs {
		w, err := r.wayTo(a)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		list = append(list, w)
	}
	if len(list) > 0 {
		failed = nil // one way is enough
	}
	want, err := r.o.plan(p, list)
	return want, errors.Join(append(failed, err)...)
}

// claim notes what a peer wants, and returns the places that may have to change.
// Who has had a place first keeps its turn: of two peers with one prefix the later
// one counts, however often the other is updated.
func (r *Routes) claim(peer string, want map[place]content) []place {
	changed := slices.Collect(maps.Keys(want))
	for _, p := range r.held[peer] {
		if _, still := want[p]; !still {
			changed = append(changed, p)
			r.claims[p] = slices.DeleteFunc(r.claims[p], func(c claim) bool { return c.peer == peer })
			if len(r.claims[p]) == 0 {
				delete(r.claims, p)
			}
		}
	}
	for p, c := range want {
		i := slices.IndexFunc(r.claims[p], func(c claim) bool { return c.peer == peer })
		if i < 0 {
			r.claims[p] = append(r.claims[p], claim{peer, c})
			continue
		}
		r.claims[p][i].content = c
	}
	if r.held[peer] = slices.Collect(maps.Keys(want)); len(want) == 0 {
		delete(r.held, peer)
	}
	return changed
}

// wanted is what is to be in a place.
func (r *Routes) wanted(p place) (content, bool) {
	list := r.claims[p]
	if len(list) == 0 {
		return content{}, false
	}
	return list[len(list)-1].content, true
}

// sync makes the kernel have what is wanted in the given places: first what is
// missing, from the end that a packet needs last, then what is too much, the other way.
func (r *Routes) sync(places []place) error {
	if err := r.read(); err != nil {
		return err
	}
	var missing, odd []place
	mtu := map[overlay]int{}
	for _, p := range places {
		want, ok := r.wanted(p)
		has, there := r.have.has[p]
		switch {
		case ok && (!there || has != want):
			missing = append(missing, p)
		case !ok && there:
			odd = append(odd, p)
		}
		if ok && p.kind == routeKind {
			mtu[want.over] = max(mtu[want.over], want.mtu)
		}
	}
	delete(mtu, 0)
	var failed []error
	try := func(err error) bool {
		if err != nil {
			failed = append(failed, err)
		}
		return err == nil
	}
	usable := map[overlay]bool{0: true}
	for over := range r.have.devices {
		usable[over] = true
	}
	for over, least := range mtu {
		usable[over] = try(r.ensureDevice(over, least))
	}
	byKind := func(a, b place) int { return cmp.Compare(a.kind, b.kind) }
	slices.SortFunc(missing, byKind)
	for _, p := range missing {
		want, _ := r.wanted(p)
		if usable[cmp.Or(p.over, want.over)] {
			try(r.set(p, want))
		}
	}
	slices.SortFunc(odd, byKind)
	for _, p := range slices.Backward(odd) {
		try(r.unset(p))
	}
	if r.pruned {
		try(r.dropDevices())
	}
	return errors.Join(failed...)
}

// wayTo asks the kernel for the way to an address of a peer.
func (r *Routes) wayTo(a netip.Addr) (way, error) {
	found, err := r.nl.RouteGetWithOptions(a.AsSlice(), &netlink.RouteGetOptions{FIBMatch: true})
	if err != nil {
		return way{}, fmt.Errorf("find the way to its address %s: %w", a, err)
	}
	if len(found) == 0 {
		return way{}, fmt.Errorf("there is no way to its address %s", a)
	}
	rt := found[0]
	if rt.Type == typeLocal {
		return way{}, fmt.Errorf("its address %s is one of this machine", a)
	}
	w := way{addr: a, link: rt.LinkIndex, mtu: rt.MTU}
	hops := rt.MultiPath
	if len(hops) == 0 {
		hops = []*netlink.NexthopInfo{{LinkIndex: rt.LinkIndex, Gw: rt.Gw, Via: rt.Via}}
	}
	for _, hop := range hops {
		link, err := r.linkOf(hop.LinkIndex)
		if err != nil {
			return way{}, fmt.Errorf("find the link to its address %s: %w", a, err)
		}
		if link.Name == r.o.Bridge || r.have.owns(hop.LinkIndex) {
			return way{}, fmt.Errorf("its address %s is taken for that of a pod", a)
		}
		if w.mtu == 0 || link.MTU < w.mtu {
			w.mtu = link.MTU
		}
		w.neighbour = len(hops) == 1 && hop.Gw == nil && hop.Via == nil && passesOn(link)
		r.watch.add(hop.LinkIndex)
	}
	return w, nil
}
