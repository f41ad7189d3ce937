package dump_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/task"
)

// TestListsAreWholeWhileLinksComeAndGo lists what a machine has while another program changes it: by
// itself the library returns lists of which it says that they may lack something.
func TestListsAreWholeWhileLinksComeAndGo(t *testing.T) {
	h := nettest.New(t, "host")
	nl := h.Netlink()
	lo, err := nl.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	const stay = 1500 // more than a few parts of a list hold
	for i := range stay {
		if err := nl.AddrAdd(lo, addr(byte(i/200), byte(i%200))); err != nil {
			t.Fatal(err)
		}
	}
	g := task.NewGroup(t.Context())
	change := make(chan struct{})
	g.Go("others", func(ctx context.Context) error {
		return h.Do(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-change:
				}
				if err := errors.Join(netlink.AddrAdd(lo, addr(9, 9)), netlink.AddrDel(lo, addr(9, 9))); err != nil {
					return err
				}
			}
		})
	})
	changed := func() {
		select {
		case change <- struct{}{}:
		case <-g.Context().Done():
			t.Fatal(g.Wait())
		}
	}
	interrupted := 0
	for i := 0; i < 100 || interrupted == 0; i++ {
		changed()
		if _, err := nl.AddrList(nil, netlink.FAMILY_V4); errors.Is(err, netlink.ErrDumpInterrupted) {
			interrupted++
		}
		changed()
		addrs, err := dump.Addrs(nl, nil, netlink.FAMILY_V4)
		if err != nil {
			t.Fatal(err)
		}
		if len(addrs) < stay {
			t.Fatalf("got %d addresses, want %d and more", len(addrs), stay)
		}
		changed()
		if _, err := dump.Routes(nl, netlink.FAMILY_V4, netlink.Route{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d lists of the library were interrupted", interrupted)
	g.Cancel(nil)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func addr(third, fourth byte) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 0, third, fourth+1), Mask: net.CIDRMask(32, 32)}}
}
