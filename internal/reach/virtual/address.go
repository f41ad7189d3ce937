package virtual

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/announce"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	announcePeriod = 2 * time.Second // for whoever has heard another machine since
	refreshEvery   = 10              // announcements, and the address is given its lifetime anew
	lifetime       = 60 * time.Second
)

// Address is one that may be held by this machine.
type Address struct {
	addr netip.Addr
	nl   *netlink.Handle
	link netlink.Link
	tell announce.Teller
}

// Open finds the link that an address belongs to: one with an address of the same network,
// or else that of the default route. What an earlier process has left of it is removed.
func Open(addr netip.Addr) (_ *Address, err error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	a := &Address{addr: addr, nl: nl}
	defer func() {
		if err != nil {
			nl.Close()
		}
	}()
	if a.link, err = announce.Link(nl, addr); err != nil {
		return nil, fmt.Errorf("--virtual-ip %s: %w", addr, err)
	}
	if err := a.remove(); err != nil {
		return nil, err
	}
	a.tell, err = announce.NewTeller(addr, a.link.Attrs())
	return a, err
}

// Close releases what Open has opened. The address is not held.
func (a *Address) Close() error {
	a.nl.Close()
	return a.tell.Close()
}

// entry is the address as the kernel has it.
func (a *Address) entry() *netlink.Addr {
	bits := a.addr.BitLen()
	life := int(lifetime / time.Second)
	e := &netlink.Addr{IPNet: &net.IPNet{IP: a.addr.AsSlice(), Mask: net.CIDRMask(bits, bits)}, ValidLft: life, PreferedLft: life}
	if a.addr.Is6() {
		e.Flags, e.PreferedLft = unix.IFA_F_NODAD, 0 // at once, and not to send from
	}
	return e
}

func (a *Address) remove() error {
	err := a.nl.AddrDel(a.link, a.entry())
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return fmt.Errorf("take address %s from link %s: %w", a.addr, a.link.Attrs().Name, err)
	}
	return nil
}

// Hold holds the address until ctx ends. It may be called again.
func (a *Address) Hold(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, a.remove()) }()
	for n := 0; ; n++ {
		if n%refreshEvery == 0 {
			if err := a.nl.AddrReplace(a.link, a.entry()); err != nil {
				return fmt.Errorf("give address %s to link %s: %w", a.addr, a.link.Attrs().Name, err)
			}
		}
		if err := a.tell.Tell(); err != nil {
			return fmt.Errorf("announce address %s on link %s: %w", a.addr, a.link.Attrs().Name, err)
		}
		if task.Sleep(ctx, announcePeriod) != nil {
			return nil
		}
	}
}
