package podnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
)

// Network is the pod network of this node. Its methods work on the network
// namespace of the thread that called New; Ensure must be called on such a thread
// (which matters to tests only). Ensure and Run must not be called concurrently;
// Routes may be used beside them.
type Network struct {
	// Routes are the ways to the pods of other nodes.
	Routes *Routes

	o     Options
	nl    *netlink.Handle
	conn  *nft.Conn
	watch *nft.Watch
	hooks *nft.Watch // of others' chains
	links *nft.Groups
	moves *moves
	send  *senders
	pause time.Duration // between two repairs; see mendPause
	next  serviceRanges

	looked   bool   // for collisions, and found none
	firewall string // the chains that Trouble has been told of
}

// New returns the network and changes nothing on the machine yet. The caller must
// Close the network, which leaves the machine's links and rules as they are.
func New(o Options) (*Network, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(o.PodCIDRs) == 0 {
		return nil, errors.New("pod network: no pod CIDR")
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	n := &Network{o: o, nl: nl, pause: mendPause}
	n.next.set = make(chan struct{}, 1)
	if n.conn, err = nft.Open(); err != nil {
		n.Close()
		return nil, err
	}
	if n.watch, err = n.conn.Watch(); err != nil {
		n.Close()
		return nil, err
	}
	if n.hooks, err = n.conn.Watch(); err != nil {
		n.Close()
		return nil, err
	}
	if n.send, err = newSenders(&n.o); err != nil {
		n.Close()
		return nil, err
	}
	if n.links, err = watchLinks(); err != nil {
		n.Close()
		return nil, err
	}
	forRoutes, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		n.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	if n.moves, err = watchMoves(); err != nil {
		forRoutes.Close()
		n.Close()
		return nil, err
	}
	n.Routes = newRoutes(&n.o, forRoutes, n.moves)
	return n, nil
}

// Close closes the sockets.
func (n *Network) Close() {
	n.nl.Close()
	if n.conn != nil {
		n.conn.Close()
	}
	if n.watch != nil {
		n.watch.Close()
	}
	if n.hooks != nil {
		n.hooks.Close()
	}
	if n.send != nil {
		n.send.close()
	}
	if n.links != nil {
		n.links.Close()
	}
	if n.moves != nil {
		n.moves.Close()
	}
	if n.Routes != nil {
		n.Routes.nl.Close()
	}
}

// Ensure brings about the node's own part of the network: sysctls, bridge,
// rules, and at last the CNI configuration. It may be called at any time, and
// changes only what is not as it should be; running pods do not notice.
//
// It fails, and changes nothing, if the bridge is that of another cluster of
// this machine, or if it is not there yet and the machine uses some of the
// cluster's addresses itself: once pods run, what others do later is no reason to stop.
func (n *Network) Ensure(ctx context.Context) error {
	other, err := otherOwner(n.nl, &n.o)
	if err != nil {
		return err
	}
	if other != "" {
		return fmt.Errorf("bridge %s belongs to another cluster of this machine, which is kept in %s: reset that one first, or run this one in a network namespace of its own", n.o.Bridge, other)
	}
	if err := n.collision(); err != nil {
		return err
	}
	host, err := hostSysctls(&n.o)
	if err != nil {
		return err
	}
	if err := ensureSysctls(host, n.o.sysctlFile()); err != nil {
		return err
	}
	mtu, err := n.mtu()
	if err != nil {
		return err
	}
	if err := n.ensureBridge(mtu); err != nil {
		return fmt.Errorf("set up bridge %s: %w", n.o.Bridge, err)
	}
	for _, s := range bridgeSysctls(&n.o) { // these go with the bridge
		if err := writeSysctl(s.name, s.value); err != nil {
			return err
		}
	}
	if err := n.ensureServiceRoutes(); err != nil {
		return err
	}
	if err := writeRules(ctx, n.conn, &n.o); err != nil {
		return err
	}
	if err := n.send.ensure(ctx); err != nil {
		return err
	}
	return writeConf(&n.o, mtu)
}

// Connected has the pod of a new sandbox send with no addresses but its own. Its first container
// starts afterwards. It may be called beside all other methods.
func (n *Network) Connected(ctx context.Context, sandbox string) error {
	return n.send.add(ctx, sandbox)
}

// Run is Ensure, and then sees to it that all of it stays in force, whoever
// flushes the rules, deletes the bridge or stops the machine from forwarding,
// until ctx ends.
func (n *Network) Run(ctx context.Context) error {
	back := task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}
	for err := errors.Join(n.Ensure(ctx), n.reattach()); err != nil; err = errors.Join(n.Ensure(ctx), n.reattach()) {
		wait := back.Next()
		n.o.Log.Error("cannot set up the pod network", "err", err, "retry", wait)
		if err := task.Sleep(ctx, wait); err != nil {
			return err
		}
	}
	n.inspectFirewall()
	g := task.NewGroup(ctx)
	rules, hooks, links, moves := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1) // each holds one token: there is something to look at
	tell := func(to chan struct{}, next func(ctx context.Context) error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			for {
				if err := next(ctx); err != nil {
					return err
				}
				select {
				case to <- struct{}{}:
				default: // that is known already
				}
			}
		}
	}
	g.Go("watch rules of the pod network", tell(rules, func(ctx context.Context) error { return n.watch.Next(ctx, table) }))
	g.Go("what pods send", n.send.run)
	g.Go("watch chains", tell(hooks, n.hooks.NextHook))
	g.Go("watch links", tell(links, n.linksChanged))
	g.Go("watch ways to other nodes", tell(moves, n.moves.next))
	var (
		look   <-chan time.Time // when the ways to other nodes are looked at; nil: they need not be
		looked time.Time
		tries  = task.Backoff{Initial: n.pause, Max: 5 * time.Minute, Jitter: 0.2}
	)
	for {
		select {
		case <-g.Context().Done():
			return g.Wait()
		case <-rules:
			n.o.Log.Warn("rules of the pod network were changed by another program: writing them again", "table", table.String())
			n.rewrite(g.Context())
		case <-hooks:
			n.inspectFirewall()
		case <-links:
			n.mend(g.Context())
			if err := n.send.prune(g.Context(), n.nl); err != nil {
				n.o.Log.Warn("cannot forget the addresses of pods that have gone", "err", err)
			}
		case <-n.next.set:
			n.changeServices(g.Context())
		case <-moves:
			look = time.After(time.Until(looked.Add(n.pause)))
		case <-n.Routes.again:
			if look == nil {
				look = time.After(tries.Next())
			}
		case <-look:
			look, looked = nil, time.Now()
			if err := n.Routes.refresh(g.Context()); err == nil {
				tries.Reset()
			} else {
				n.o.Log.Error("cannot reach the pods of other nodes", "err", err)
			}
			n.inspectFirewall() // a port may be needed now
		}
	}
}

// rewrite writes the rules until that succeeds or ctx ends.
func (n *Network) rewrite(ctx context.Context) {
	back := task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}
	for ctx.Err() == nil {
		err := writeRules(ctx, n.conn, &n.o)
		if err == nil {
			return
		}
		wait := back.Next()
		n.o.Log.Error("cannot write rules of the pod network", "err", err, "retry", wait)
		_ = task.Sleep(ctx, wait) // the loop looks at ctx
	}
}

// mtu is what the pods' links may carry at a time: as much as the link that the
// default route uses, or as VXLAN leaves of that where all goes by it. Elsewhere pods
// are told by the node when a packet is too large for the way to a node.
func (n *Network) mtu() (int, error) {
	routes, err := dump.Routes(n.nl, netlink.FAMILY_ALL, netlink.Route{}, 0)
	if err != nil {
		return 0, err
	}
	mtu, over := 1500, over4
	for _, r := range routes {
		if !isDefault(r.Dst) || r.LinkIndex == 0 {
			continue
		}
		l, err := n.nl.LinkByIndex(r.LinkIndex)
		if err != nil {
			return 0, fmt.Errorf("find link of the default route: %w", err)
		}
		if mtu = l.Attrs().MTU; r.Family == netlink.FAMILY_V6 {
			over = over6
		}
		break
	}
	if n.o.Mode == OnlyVXLAN {
		mtu = max(mtu-over.overhead(), leastMTU)
	}
	return mtu, nil
}

func isDefault(dst *net.IPNet) bool {
	if dst == nil {
		return true
	}
	ones, _ := dst.Mask.Size()
	return ones == 0
}

// ensureBridge makes the bridge with the gateway addresses. It has a hardware
// address of its own, which does not change as pods come and go.
func (n *Network) ensureBridge(mtu int) error {
	link, err := n.nl.LinkByName(n.o.Bridge)
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.As(err, &notFound):
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: n.o.Bridge, MTU: mtu, HardwareAddr: hardwareAddr(n.o.PodCIDRs[0]), TxQLen: -1}}
		if err := n.nl.LinkAdd(br); err != nil {
			return fmt.Errorf("add: %w", err)
		}
		if link, err = n.nl.LinkByName(n.o.Bridge); err != nil {
			return err
		}
	case err != nil:
		return err
	case link.Type() != "bridge":
		return fmt.Errorf("there is a link of this name, which is a %s", link.Type())
	}
	if link.Attrs().Alias != n.o.ownerMark() {
		if err := n.nl.LinkSetAlias(link, n.o.ownerMark()); err != nil {
			return fmt.Errorf("note whose it is: %w", err)
		}
	}
	if link.Attrs().MTU != mtu {
		if err := n.nl.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", mtu, err)
		}
	}
	if err := n.ensureAddrs(link); err != nil {
		return err
	}
	if err := n.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("set up: %w", err)
	}
	return nil
}

// ensureAddrs gives the bridge the gateway addresses, and takes away those of an
// earlier pod CIDR.
func (n *Network) ensureAddrs(link netlink.Link) error {
	want := map[netip.Prefix]bool{}
	for _, c := range n.o.PodCIDRs {
		want[netip.PrefixFrom(Gateway(c), c.Bits())] = true
	}
	return setAddrs(n.nl, link, want)
}

// setAddrs gives a link the addresses that it is to have, and takes away others.
func setAddrs(nl *netlink.Handle, link netlink.Link, want map[netip.Prefix]bool) error {
	have, err := dump.Addrs(nl, link, netlink.FAMILY_ALL)
	if err != nil {
		return err
	}
	for _, a := range have {
		p, ok := prefixOf(a.IPNet)
		switch {
		case !ok || p.Addr().IsLinkLocalUnicast():
		case want[p]:
			delete(want, p)
		default:
			if err := nl.AddrDel(link, &a); err != nil {
				return fmt.Errorf("delete address %s: %w", p, err)
			}
		}
	}
	for p := range want {
		addr := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
		if p.Addr().Is4() {
			addr.Flags = 0
		}
		if err := nl.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	return nil
}

// hardwareAddr is a locally administered address made from the pod CIDR.
func hardwareAddr(p netip.Prefix) net.HardwareAddr {
	b := Gateway(p).AsSlice()
	return append(net.HardwareAddr{0x0a, 0x58}, b[len(b)-4:]...)
}

// ipNet keeps the address as it is, with host bits.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	a, ok := netip.AddrFromSlice(n.IP)
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones), ok
}
