package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
)

// addresses are the addresses by which others know this machine and its API. Where
// they are asked for, a zero address is to be found out.
type addresses struct {
	first, second netip.Addr // of the node, one of each family; there may be no second
	advertise     netip.Addr
	routed        bool // first is what the machine sends from to the world
}

// addresses are those that the options name.
func (o *Options) addresses() addresses {
	return addresses{first: o.NodeIP, second: o.SecondNodeIP, advertise: o.AdvertiseAddress}
}

// find finds out the addresses that are not asked for.
func (o Options) find(asked addresses) (addresses, error) {
	o.NodeIP, o.SecondNodeIP, o.AdvertiseAddress = asked.first, asked.second, asked.advertise
	if err := o.findNode(); err != nil {
		return addresses{}, err
	}
	return o.addresses(), nil
}

// place is where a machine is: the addresses by which others know it.
type place struct {
	log   *slog.Logger
	asked addresses
	find  func(asked addresses) (addresses, error) // finds out those that were not asked for
	now   atomic.Pointer[addresses]
}

// set notes the machine's addresses.
func (p *place) set(now addresses) {
	now = now.withRouted()
	p.now.Store(&now)
}

// withRouted are the addresses with what the machine's routes say of the first one now.
func (a addresses) withRouted() addresses {
	a.routed = routedIP(a.first.Is4()) == a.first
	return a
}

// get are the machine's addresses now.
func (p *place) get() addresses { return *p.now.Load() }

// node are those of the node's addresses that are known, as text, the first one first.
func (a addresses) node() (list []string) {
	for _, addr := range []netip.Addr{a.first, a.second} {
		if addr.IsValid() {
			list = append(list, addr.String())
		}
	}
	return list
}

// next are the addresses that follow on a when the machine's have changed: an
// address stays as long as the machine has it, and while there is no better one.
// So a laptop keeps its address while it is away from every network.
func (a addresses) next(asked addresses, has func(netip.Addr) bool, find func(addresses) (addresses, error)) (addresses, error) {
	want := asked
	if has(a.first) {
		want.first = a.first
	}
	if has(a.second) {
		want.second = a.second
	}
	found, err := find(want)
	if err != nil {
		return a, err
	}
	if found.first == a.first {
		found.routed = a.routed
	}
	if a.routed && !found.routed {
		return a, nil // some address, of a bridge perhaps, while there is no network
	}
	if !found.second.IsValid() {
		found.second = a.second
	}
	return found, nil
}

// onMachine reports whether the machine has an address.
func onMachine(addr netip.Addr) bool {
	all, err := net.InterfaceAddrs()
	if err != nil || !addr.IsValid() {
		return false
	}
	return slices.ContainsFunc(all, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Addr().Unmap() == addr
	})
}

// settleTime is how long the machine's addresses must not change before they are
// looked at: a renewed lease takes an address away to give it back.
const settleTime = 500 * time.Millisecond

// watchAddresses joins the groups that tell of changes of addresses, and of the
// routes that choose among them.
func watchAddresses() (*nft.Groups, error) {
	return nft.Join(unix.NETLINK_ROUTE, "addresses",
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE)
}

// followAddresses puts a token into moved whenever the machine's addresses may have
// become others, until ctx ends, and one at once.
func followAddresses(ctx context.Context, moved chan<- struct{}) error {
	changes, err := watchAddresses()
	if err != nil {
		return err
	}
	defer changes.Close()
	for {
		select {
		case moved <- struct{}{}:
		default: // the token is there
		}
		if err := changes.Next(ctx, func(m nft.Message) bool {
			return slices.Contains([]uint16{unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWROUTE, unix.RTM_DELROUTE}, m.Type)
		}); err != nil {
			return fmt.Errorf("follow the machine's addresses: %w", err)
		}
		if err := task.Sleep(ctx, settleTime); err != nil {
			return err
		}
	}
}

// look reports whether the machine has other addresses now, and notes them.
func (p *place) look() (moved bool, _ error) {
	now := p.get()
	next, err := now.next(p.asked, onMachine, func(asked addresses) (addresses, error) {
		found, err := p.find(asked)
		return found.withRouted(), err
	})
	if err != nil || next == now {
		return false, err
	}
	if next.advertise.IsValid() {
		p.log.Warn("the machine's address has changed", "was", now.node(), "is", next.node(), "advertised", next.advertise)
	} else {
		p.log.Warn("the machine's address has changed", "was", now.node(), "is", next.node())
	}
	p.now.Store(&next)
	return true, nil
}

// settle brings everything that names this machine's addresses up to date.
func (s *server) settle(ctx context.Context, renewals []func() error) error {
	s.pki.SetHosts(s.hosts())
	for _, renew := range renewals {
		if err := renew(); err != nil {
			return err
		}
	}
	if s.worker != nil {
		s.worker.SetNodeIPs(s.at.get().node())
	}
	if err := s.seats.moved(ctx); err != nil {
		return err
	}
	s.plane.Move(s.own())
	return s.publish(ctx)
}

// hosts are the names and addresses by which the API server is reached.
func (s *server) hosts() []string {
	at := s.at.get()
	return slices.Concat([]string{s.o.NodeName, at.advertise.String(), s.o.Network.APIServiceIP().String()}, at.node(), s.o.TLSSANs, texts(s.o.VirtualIPs))
}

// keep keeps certificates good and what names this machine true, until ctx ends.
// It looks once a day whether a certificate ends soon, and at each token of moved
// whether the machine's addresses have changed: then it settles. What fails is tried again.
func (p *place) keep(ctx context.Context, moved <-chan struct{}, renewals []func() error, settle func(context.Context) error) error {
	retry := task.Backoff{Initial: time.Second, Max: time.Minute}
	var again <-chan time.Time // of a failure; nil: there is none
	daily := time.NewTicker(24 * time.Hour)
	defer daily.Stop()
	for {
		select {
		case <-daily.C:
			for _, renew := range renewals {
				if err := renew(); err != nil { // there are months left
					p.log.Error("renew certificates", "err", err)
				}
			}
			continue
		case <-moved:
			moved, err := p.look()
			if err != nil {
				p.log.Debug("the machine has no other address", "err", err)
			}
			if !moved {
				continue
			}
		case <-again:
		case <-ctx.Done():
			return nil
		}
		again = nil
		if err := settle(ctx); err == nil {
			retry.Reset()
		} else if ctx.Err() == nil {
			p.log.Error("tell everybody the machine's new address", "err", err)
			again = time.After(retry.Next())
		}
	}
}
