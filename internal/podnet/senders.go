package podnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
)

// senders keep each pod to the addresses that it was given: what its link brings to the
// bridge with others is dropped before the bridge learns anything of it. A pod is some elements
// of sets; what a link may send that no pod is noted for is not looked at.
type senders struct {
	o     *Options
	watch *nft.Watch

	mu struct {
		sync.Mutex
		conn  *nft.Conn
		known map[string]Attachment // those in the kernel, by the node's end of their links
	}
}

// frames is the table of the bridge's ports.
var frames = nft.Table{Family: nft.Bridge, Name: "kemudi-podnet"}

// The sets of that table.
var (
	guardedPorts = nft.Set{Name: "ports", Key: []nft.Field{nft.IfName}}
	portMACs     = nft.Set{Name: "macs", Key: []nft.Field{nft.IfName, nft.Mac}}
	portIPs      = nft.Set{Name: "ips", Key: []nft.Field{nft.IfName, nft.Addr4}}
	portIP6s     = nft.Set{Name: "ip6s", Key: []nft.Field{nft.IfName, nft.Addr6}}
)

func newSenders(o *Options) (*senders, error) {
	s := &senders{o: o}
	s.mu.known = map[string]Attachment{}
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	s.mu.conn = conn
	if s.watch, err = conn.Watch(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *senders) close() {
	s.mu.conn.Close()
	if s.watch != nil {
		s.watch.Close()
	}
}

// run writes the table again when another program has changed it.
func (s *senders) run(ctx context.Context) error {
	back := task.Backoff{Initial: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.2}
	for {
		if err := s.watch.Next(ctx, frames); err != nil {
			return err
		}
		s.o.Log.Warn("rules for what pods send were changed by another program: writing them again", "table", frames.String())
		for err := s.ensure(ctx); err != nil; err = s.ensure(ctx) {
			wait := back.Next()
			s.o.Log.Error("cannot keep pods to their own addresses", "err", err, "retry", wait)
			if err := task.Sleep(ctx, wait); err != nil {
				return err
			}
		}
		back.Reset()
	}
}

// ensure writes the whole table, in one transaction, for the pods that are noted.
func (s *senders) ensure(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ensureLocked(ctx)
}

func (s *senders) ensureLocked(ctx context.Context) error {
	list, err := Attached(*s.o)
	if err != nil {
		s.o.Log.Warn("some pods are not kept to their own addresses", "err", err)
	}
	var b nft.Batch
	b.AddTable(frames) // so that the deletion cannot fail
	b.DelTable(frames)
	b.AddTable(frames)
	for _, set := range []nft.Set{guardedPorts, portMACs, portIPs, portIP6s} {
		b.AddSet(frames, set)
	}
	senderRules(&b)
	known := map[string]Attachment{}
	for _, a := range list {
		if _, twice := known[a.Link]; a.guarded() && !twice {
			known[a.Link] = a
			a.write(&b, (*nft.Batch).AddElems)
		}
	}
	return s.commitLocked(ctx, &b, known)
}

// commitLocked brings a transaction into force, after which those are known.
func (s *senders) commitLocked(ctx context.Context, b *nft.Batch, known map[string]Attachment) error {
	if err := s.mu.conn.Commit(ctx, b); err != nil {
		return fmt.Errorf("write rules for what pods send: %w", err)
	}
	s.mu.known = known
	return nil
}

// add has the pod of a sandbox send with its own addresses alone.
func (s *senders) add(ctx context.Context, sandbox string) error {
	a, err := s.o.attachmentOf(sandbox)
	if err != nil || !a.guarded() {
		return err // a runtime that notes nothing has no CNI library of ours
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := map[string]Attachment{a.Link: a}
	for link, k := range s.mu.known {
		if link != a.Link {
			known[link] = k
		}
	}
	var b nft.Batch
	if old, ok := s.mu.known[a.Link]; ok {
		old.write(&b, (*nft.Batch).DelElems)
	}
	a.write(&b, (*nft.Batch).AddElems)
	if s.commitLocked(ctx, &b, known) == nil {
		return nil
	}
	return s.ensureLocked(ctx) // the table is not as it was left
}

// prune forgets the pods whose links have gone.
func (s *senders) prune(ctx context.Context, nl *netlink.Handle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.known) == 0 {
		return nil
	}
	links, err := dump.Links(nl)
	if err != nil {
		return err
	}
	known := map[string]Attachment{}
	for _, l := range links {
		if a, ok := s.mu.known[l.Attrs().Name]; ok {
			known[a.Link] = a
		}
	}
	var b nft.Batch
	for link, a := range s.mu.known {
		if _, ok := known[link]; !ok {
			a.write(&b, (*nft.Batch).DelElems)
		}
	}
	if s.commitLocked(ctx, &b, known) == nil {
		return nil
	}
	return s.ensureLocked(ctx)
}

// attachmentOf is what the CNI library has noted of a sandbox; nothing, if that is nothing.
func (o *Options) attachmentOf(sandbox string) (Attachment, error) {
	for _, dir := range []string{o.RuntimeCacheDir, o.CNICacheDir} {
		a, err := o.readAttachment(filepath.Join(dir, "results", o.networkName()+"-"+sandbox+"-eth0"))
		if !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
	}
	return Attachment{}, nil
}

// guarded says whether enough is noted of a pod to tell what is its own.
func (a *Attachment) guarded() bool {
	mac, err := net.ParseMAC(a.MAC)
	return a.Link != "" && err == nil && len(mac) == 6 && len(a.Addrs) > 0
}

// write adds or deletes the elements of a pod, which is guarded.
func (a *Attachment) write(b *nft.Batch, do func(*nft.Batch, nft.Table, string, []nft.Elem)) {
	mac, _ := net.ParseMAC(a.MAC) // it is guarded
	port := func() nft.Key { return nft.Key(nil).IfName(a.Link) }
	var ips, ip6s []nft.Elem
	for _, ip := range a.Addrs {
		if ip.Is4() {
			ips = append(ips, nft.Elem{Key: port().Addr(ip)})
		} else {
			ip6s = append(ip6s, nft.Elem{Key: port().Addr(ip)})
		}
	}
	ip6s = append(ip6s, nft.Elem{Key: port().Addr(linkLocal(mac))})
	do(b, frames, guardedPorts.Name, []nft.Elem{{Key: port()}})
	do(b, frames, portMACs.Name, []nft.Elem{{Key: port().Mac(mac)}})
	if len(ips) > 0 {
		do(b, frames, portIPs.Name, ips)
	}
	do(b, frames, portIP6s.Name, ip6s)
}

// linkLocal is the address that the kernel makes of the hardware address of a link.
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// The chains of the table.
const (
	chainPorts   = "prerouting"
	chainSender  = "sender"
	chainARP     = "sender-arp"
	chainIPv6    = "sender-ip6"
	chainNoAddr6 = "sender-unspecified"
)

// Types of ICMPv6 by which neighbours and routers find each other.
const (
	routerAdvert = 134
	whoHas       = 135
	neighbour    = 136
	redirectType = 137
)

// senderRules make the chains. They are passed before br_netfilter, where it is loaded, has the
// rules of IP see the frames: addresses are still the sender's.
func senderRules(b *nft.Batch) {
	b.AddChain(frames, chainPorts, &nft.Hook{Type: "filter", Num: unix.NF_INET_PRE_ROUTING, Priority: -300})
	for _, c := range []string{chainSender, chainARP, chainIPv6, chainNoAddr6} {
		b.AddChain(frames, c, nil)
	}
	rule := func(chain string, statements ...[]nft.Expr) {
		var all []nft.Expr
		for _, s := range statements {
			all = append(all, s...)
		}
		b.AddRule(frames, chain, all...)
	}
	is := func(load nft.Expr, value ...byte) []nft.Expr { return []nft.Expr{load, nft.Equal(nft.R0, value)} }
	do := func(code nft.Code, chain string) []nft.Expr { return []nft.Expr{nft.Do(code, chain)} }
	drop := []nft.Expr{nft.Counter(), nft.Do(nft.Drop, "")}
	port := nft.Meta(unix.NFT_META_IIFNAME, nft.R0)
	const behind = nft.R0 + 4 // the registers after the port's name
	forged := func(what nft.Expr, set nft.Set) []nft.Expr {
		return []nft.Expr{port, what, nft.NotIn(nft.Named(set.Name), nft.R0)}
	}
	icmpv6 := is(nft.TransportProto(nft.R0), unix.IPPROTO_ICMPV6)
	typ, target := nft.TransportHeader(nft.R0, 0, 1), nft.TransportHeader(behind, 8, 16)

	rule(chainPorts, []nft.Expr{port, nft.In(nft.Named(guardedPorts.Name), nft.R0)}, do(nft.Goto, chainSender))

	rule(chainSender, forged(nft.SourceMac(behind), portMACs), drop)
	rule(chainSender, is(nft.EtherType(nft.R0), 0x08, 0x06), do(nft.Goto, chainARP))
	rule(chainSender, is(nft.EtherType(nft.R0), 0x86, 0xdd), do(nft.Goto, chainIPv6))
	rule(chainSender, is(nft.EtherType(nft.R0), 0x08, 0x00), forged(nft.SourceAddr(nft.IPv4, behind), portIPs), drop)

	// Ethernet and IPv4, and the addresses of who sends. One that is only asked for claims nothing.
	rule(chainARP, []nft.Expr{nft.NetworkHeader(nft.R0, 0, 6), nft.NotEqual(nft.R0, []byte{0, 1, 8, 0, 6, 4})}, drop)
	rule(chainARP, forged(nft.NetworkHeader(behind, 8, 6), portMACs), drop)
	rule(chainARP, is(nft.NetworkHeader(nft.R0, 14, 4), 0, 0, 0, 0), do(nft.Accept, ""))
	rule(chainARP, forged(nft.NetworkHeader(behind, 14, 4), portIPs), drop)

	rule(chainIPv6, is(nft.SourceAddr(nft.IPv6, nft.R0), make([]byte, 16)...), do(nft.Goto, chainNoAddr6))
	rule(chainIPv6, forged(nft.SourceAddr(nft.IPv6, behind), portIP6s), drop)
	rule(chainIPv6, icmpv6, is(typ, routerAdvert), drop)
	rule(chainIPv6, icmpv6, is(typ, redirectType), drop)
	rule(chainIPv6, icmpv6, is(typ, neighbour), forged(target, portIP6s), drop)

	// Who has no address yet asks whether somebody else has it, and says which groups it joins.
	rule(chainNoAddr6, icmpv6, is(typ, whoHas), forged(target, portIP6s), drop)
	for _, claims := range []byte{routerAdvert, neighbour, redirectType} {
		rule(chainNoAddr6, icmpv6, is(typ, claims), drop)
	}
	rule(chainNoAddr6, icmpv6, do(nft.Accept, ""))
	rule(chainNoAddr6, drop)
}
