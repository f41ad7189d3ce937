package podnet

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
)

// crowd is a node with a default route and pods of both families, without peers yet.
func crowd(b *testing.B) (*nettest.Host, *Network) {
	h, router := nettest.New(b, "n1"), nettest.New(b, "router")
	nettest.Link(h, "eth0", router, "eth0")
	h.Addr("eth0", "192.168.1.1/24")
	h.Route("0.0.0.0/0", "192.168.1.254")
	dir := b.TempDir()
	var n *Network
	h.Must(func() (err error) {
		n, err = New(Options{
			PodCIDRs: mustPrefixes("10.0.0.0/24", "fd00:244::/64"), ClusterCIDRs: mustPrefixes("10.0.0.0/9", "fd00:244::/32"),
			CNIConfDir: dir + "/cni", DataDir: dir + "/data", CNICacheDir: dir + "/cache",
		})
		if err != nil {
			return err
		}
		return n.Ensure(b.Context())
	})
	b.Cleanup(n.Close)
	return h, n
}

// stranger is a node that is no neighbour; with its second address if odd.
func stranger(i int, odd bool) Peer {
	a := netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)})
	if odd {
		a = netip.AddrFrom4([4]byte{172, 17, byte(i >> 8), byte(i)})
	}
	return Peer{
		PodCIDRs: mustPrefixes(fmt.Sprintf("10.%d.%d.0/24", 1+i>>8, i&0xff), fmt.Sprintf("fd00:244:1:%x::/64", i)),
		Addrs:    []netip.Addr{a},
	}
}

func BenchmarkPeers(b *testing.B) {
	for _, size := range []int{1000, 5000} {
		h, n := crowd(b)
		feed := func(r *Routes) error {
			for i := range size {
				if err := r.Update(b.Context(), fmt.Sprint(i), stranger(i, false)); err != nil {
					return err
				}
			}
			return r.Prune(b.Context())
		}
		drop := func() error {
			for i := range size {
				if err := n.Routes.Delete(b.Context(), fmt.Sprint(i)); err != nil {
					return err
				}
			}
			return nil
		}
		run := func(name string, f func(b *testing.B) error) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.ReportAllocs()
				h.Must(func() error { return f(b) })
			})
		}
		run("FedToAnEmptyKernel", func(b *testing.B) error {
			for b.Loop() {
				if err := feed(n.Routes); err != nil {
					return err
				}
				b.StopTimer()
				if err := drop(); err != nil {
					return err
				}
				b.StartTimer()
			}
			return feed(n.Routes)
		})
		run("FedAfterARestart", func(b *testing.B) error {
			for b.Loop() {
				if err := feed(newRoutes(&n.o, n.nl, n.moves)); err != nil {
					return err
				}
			}
			return nil
		})
		run("LookedAtAgain", func(b *testing.B) error {
			for b.Loop() {
				if err := n.Routes.refresh(b.Context()); err != nil {
					return err
				}
			}
			return nil
		})
		run("OneMoves", func(b *testing.B) error {
			odd := false
			for b.Loop() {
				odd = !odd
				if err := n.Routes.Update(b.Context(), "7", stranger(7, odd)); err != nil {
					return err
				}
			}
			return nil
		})
		run("OneComesAndGoes", func(b *testing.B) error {
			for b.Loop() {
				if err := n.Routes.Delete(b.Context(), "7"); err != nil {
					return err
				}
				if err := n.Routes.Update(b.Context(), "7", stranger(7, false)); err != nil {
					return err
				}
			}
			return nil
		})
		run("OneIsUpdatedToNoEffect", func(b *testing.B) error {
			for b.Loop() {
				if err := n.Routes.Update(b.Context(), "9", stranger(9, false)); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// BenchmarkBetweenNodes measures a stream from pod to pod of two machines on one wire, by
// each kind of way, beside one over VXLAN devices made by hand the way the ip program makes them.
func BenchmarkBetweenNodes(b *testing.B) {
	for _, f := range []families{{"IPv4", "IPv4"}, {"IPv6", "IPv6"}} {
		for _, mode := range []Mode{OnlyRoutes, OnlyVXLAN} {
			pods, at := pair(b, f, mode)
			from, to := Gateway(at[0].PodCIDRs[0]).Next(), Gateway(at[1].PodCIDRs[0]).Next()
			b.Run(fmt.Sprintf("%s/%s", f.nodes, mode), func(b *testing.B) { throughput(b, pods[0], pods[1], from, to) })
			if mode == OnlyVXLAN {
				b.Run(f.nodes+"/bare", func(b *testing.B) { throughput(b, pods[0], pods[1], barePod(at[0]), barePod(at[1])) })
			}
		}
	}
}

// pair makes two nodes on one wire with a pod on each.
func pair(b *testing.B, f families, mode Mode) (pods [2]*nettest.Host, at [2]Peer) {
	hosts := [2]*nettest.Host{nettest.New(b, "n1"), nettest.New(b, "n2")}
	nettest.Link(hosts[0], "eth0", hosts[1], "eth0")
	for i, h := range hosts {
		addr := pick(f.nodes, fmt.Sprintf("192.168.1.%d/24", i+1), fmt.Sprintf("fd00:1::%d/64", i+1))[0]
		h.Addr("eth0", addr)
		at[i] = Peer{
			PodCIDRs: mustPrefixes(pick(f.pods, fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:244:0:%d::/64", i+1))...),
			Addrs:    []netip.Addr{netip.MustParsePrefix(addr).Addr()},
		}
	}
	for i, h := range hosts {
		dir := b.TempDir()
		var n *Network
		h.Must(func() (err error) {
			n, err = New(Options{
				Mode: mode, PodCIDRs: at[i].PodCIDRs, ClusterCIDRs: mustPrefixes(pick(f.pods, "10.244.0.0/16", "fd00:244::/48")...),
				CNIConfDir: dir + "/cni", DataDir: dir + "/data", CNICacheDir: dir + "/cache",
			})
			if err == nil {
				err = n.Ensure(b.Context())
			}
			if err == nil {
				err = n.Routes.Update(b.Context(), "other", at[1-i])
			}
			return err
		})
		b.Cleanup(n.Close)
		pods[i] = nettest.New(b, fmt.Sprintf("pod%d", i+1))
		nettest.Link(h, "pod", pods[i], "eth0")
		h.Port(DefaultBridge, "pod")
		gw, bits := Gateway(at[i].PodCIDRs[0]), at[i].PodCIDRs[0].Bits()
		pods[i].Addr("eth0", netip.PrefixFrom(gw.Next(), bits).String())
		pods[i].Route(pick(f.pods, "0.0.0.0/0", "::/0")[0], gw.String())
		bare(b, h, i, at[1-i])
		pods[i].Addr("eth0", netip.PrefixFrom(barePod(at[i]), bits).String())
	}
	return pods, at
}

// barePod is the address of a pod on the network made by hand.
func barePod(p Peer) netip.Addr {
	a := p.PodCIDRs[0].Addr().As16()
	if p.PodCIDRs[0].Addr().Is4() {
		return netip.AddrFrom4([4]byte{10, 245, a[14], 2})
	}
	a[3] = 0x45
	return netip.AddrFrom16(a).Next().Next()
}

// bare makes a VXLAN device by hand, with a route over it.
func bare(b *testing.B, h *nettest.Host, i int, other Peer) {
	b.Helper()
	nl := h.Netlink()
	mac := func(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(i)} }
	dev := &netlink.Vxlan{LinkAttrs: netlink.LinkAttrs{Name: "bare", MTU: 1430, HardwareAddr: mac(i), TxQLen: -1}, VxlanId: 99, Port: 8472, UDPCSum: true}
	if other.Addrs[0].Is6() {
		dev.SrcAddr = net.IPv6unspecified
	}
	pod := barePod(other)
	bits := other.PodCIDRs[0].Bits()
	dst := netip.PrefixFrom(pod, bits).Masked()
	own := netip.PrefixFrom(barePod(Peer{PodCIDRs: []netip.Prefix{mustPrefixes(fmt.Sprintf("10.244.%d.0/24", i+1), fmt.Sprintf("fd00:244:0:%d::/64", i+1))[(pod.BitLen()-32)/96]}}).Prev(), bits)
	for _, err := range []error{nl.LinkAdd(dev), nl.LinkSetUp(dev)} {
		if err != nil {
			b.Fatal(err)
		}
	}
	h.Addr(DefaultBridge, own.String())
	hop := dst.Addr()
	if pod.Is6() {
		hop = netip.MustParseAddr("fe80::99")
	}
	index := dev.Attrs().Index
	rt := &netlink.Route{Dst: ipNet(dst), Gw: hop.AsSlice(), LinkIndex: index, MTU: 1430}
	if pod.Is4() {
		rt.Flags = int(netlink.FLAG_ONLINK)
	}
	for _, err := range []error{
		nl.NeighSet(&netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF, State: netlink.NUD_PERMANENT, IP: other.Addrs[0].AsSlice(), HardwareAddr: mac(1 - i)}),
		nl.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: hop.AsSlice(), HardwareAddr: mac(1 - i)}),
		nl.RouteAdd(rt),
	} {
		if err != nil {
			b.Fatal(err)
		}
	}
}

// throughput streams from one pod to another.
func throughput(b *testing.B, from, to *nettest.Host, source, target netip.Addr) {
	const chunk = 64 << 10
	var l net.Listener
	to.Must(func() (err error) {
		l, err = net.Listen("tcp", netip.AddrPortFrom(target, 0).String())
		return err
	})
	var wg sync.WaitGroup
	got := int64(0)
	wg.Go(func() {
		c, err := l.Accept()
		if err == nil {
			got, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c}, make([]byte, 256<<10))
			_ = c.Close()
		}
	})
	c, err := from.DialFrom("tcp", netip.AddrPortFrom(source, 0).String(), l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(chunk)
	buf := make([]byte, chunk)
	start, sent := time.Now(), int64(0)
	for b.Loop() {
		n, err := c.Write(buf)
		if err != nil {
			b.Fatal(err)
		}
		sent += int64(n)
	}
	_ = c.Close()
	wg.Wait()
	_ = l.Close()
	if got != sent {
		b.Errorf("%d of %d bytes arrived in %s", got, sent, time.Since(start))
	}
}
