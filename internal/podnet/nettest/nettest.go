package nettest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/named"
)

// Host is a network namespace. Its loopback interface is up. It has a name: while a
// test runs, "ip netns exec <Host.Name> ..." looks into it.
type Host struct {
	Name string
	t    testing.TB
	ns   netns.NsHandle
	nl   *netlink.Handle
}

var serial atomic.Uint64

// New makes a host. The name, which may repeat, ends that of the namespace.
// Without root the test is skipped.
func New(t testing.TB, name string) *Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	h := &Host{Name: fmt.Sprintf("kmt-%d-%d-%s", os.Getpid(), serial.Add(1), name), t: t}
	if err := h.open(); err != nil {
		t.Fatalf("make network namespace %s: %v", h.Name, err)
	}
	h.Up("lo")
	return h
}

// open makes the namespace on a thread of its own, mounts it by name and
// registers its removal.
func (h *Host) open() error {
	if err := named.Open(); err != nil {
		return err
	}
	path := h.Path()
	h.t.Cleanup(func() {
		if h.nl != nil {
			h.nl.Close()
		}
		if h.ns.IsOpen() {
			_ = h.ns.Close()
		}
		_ = unix.Unmount(path, unix.MNT_DETACH)
		_ = os.Remove(path)
		_ = named.Close()
	})
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		return err
	}
	return onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(self, path, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		var err error
		if h.ns, err = netns.GetFromPath(path); err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
}

// onThread runs f on a thread that is thrown away afterwards: f may change the
// thread's namespace.
func onThread(f func() error) error {
	err := errors.New("ended early (a test failed at once while in a namespace)")
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err = f()
	})
	wg.Wait()
	return err
}

// Do runs f with the calling thread in the host's namespace. Sockets that f
// opens itself belong to the host for good; goroutines that it starts do not run there.
// f must not call t.FailNow.
func (h *Host) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(h.ns); err != nil {
			return fmt.Errorf("enter %s: %w", h.Name, err)
		}
		return f()
	})
}

// Must is Do for test set-up: an error fails the test.
func (h *Host) Must(f func() error) {
	h.t.Helper()
	if err := h.Do(f); err != nil {
		h.t.Fatalf("in %s: %v", h.Name, err)
	}
}

// Path is the file that names the namespace.
func (h *Host) Path() string { return filepath.Join(named.Dir, h.Name) }

// Netlink is a handle on the host's links, addresses and routes.
func (h *Host) Netlink() *netlink.Handle { return h.nl }

func (h *Host) link(name string) netlink.Link {
	h.t.Helper()
	l, err := h.nl.LinkByName(name)
	if err != nil {
		h.t.Fatalf("%s: find link %s: %v", h.Name, name, err)
	}
	return l
}

// Up sets a link up.
func (h *Host) Up(link string) {
	h.t.Helper()
	if err := h.nl.LinkSetUp(h.link(link)); err != nil {
		h.t.Fatalf("%s: set link %s up: %v", h.Name, link, err)
	}
}

// Addr gives a link an address, written with its prefix length: "10.0.0.1/24".
func (h *Host) Addr(link, cidr string) {
	h.t.Helper()
	p := netip.MustParsePrefix(cidr)
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD // or the address would be of no use for a second
	}
	if err := h.nl.AddrAdd(h.link(link), addr); err != nil {
		h.t.Fatalf("%s: add address %s to %s: %v", h.Name, cidr, link, err)
	}
}

// Route sends packets for a prefix to a neighbour.
func (h *Host) Route(cidr, via string) {
	h.t.Helper()
	p := netip.MustParsePrefix(cidr)
	err := h.nl.RouteAdd(&netlink.Route{
		Dst: &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
		Gw:  netip.MustParseAddr(via).AsSlice(),
	})
	if err != nil {
		h.t.Fatalf("%s: add route %s via %s: %v", h.Name, cidr, via, err)
	}
}

// Sysctl sets a parameter such as net/ipv4/ip_forward.
func (h *Host) Sysctl(name, value string) {
	h.t.Helper()
	h.Must(func() error { return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644) })
}

// Router lets the host forward packets, without a fuss about their way back
// or better ways. Call it before the host gets its links.
func (h *Host) Router() {
	h.t.Helper()
	h.Sysctl("net/ipv4/ip_forward", "1")
	h.Sysctl("net/ipv6/conf/all/forwarding", "1")
	for _, conf := range []string{"all", "default"} { // links that come later take the default
		h.Sysctl("net/ipv4/conf/"+conf+"/rp_filter", "0")
		h.Sysctl("net/ipv4/conf/"+conf+"/send_redirects", "0")
	}
}

// Link joins two hosts by a cable whose ends have the given names, and sets
// both up.
func Link(a *Host, aName string, b *Host, bName string) {
	a.t.Helper()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: aName},
		PeerName:      bName,
		PeerNamespace: netlink.NsFd(b.ns),
	}
	if err := a.nl.LinkAdd(veth); err != nil {
		a.t.Fatalf("link %s of %s to %s of %s: %v", aName, a.Name, bName, b.Name, err)
	}
	a.Up(aName)
	b.Up(bName)
}

// Bridge makes a bridge with the given ports and sets it up.
func (h *Host) Bridge(name string, ports ...string) {
	h.t.Helper()
	br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}
	if err := h.nl.LinkAdd(br); err != nil {
		h.t.Fatalf("%s: add bridge %s: %v", h.Name, name, err)
	}
	for _, p := range ports {
		h.Port(name, p)
	}
	h.Up(name)
}

// Port makes a link a port of a bridge, through which frames may also go back.
func (h *Host) Port(bridge, link string) {
	h.t.Helper()
	l := h.link(link)
	if err := h.nl.LinkSetMaster(l, h.link(bridge)); err != nil {
		h.t.Fatalf("%s: make %s a port of %s: %v", h.Name, link, bridge, err)
	}
	if err := h.nl.LinkSetHairpin(l, true); err != nil {
		h.t.Fatalf("%s: set hairpin mode of %s: %v", h.Name, link, err)
	}
}
