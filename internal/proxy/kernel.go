package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// kernel brings what the model asks for to the kernel of one network namespace.
// It belongs to one goroutine.
type kernel struct {
	conn *nft.Conn
	nl   *netlink.Handle // connection tracking, addresses
	// noIPv6 says that this kernel has no IPv6: it would refuse our table.
	noIPv6 bool
}

// openKernel works on the network namespace of the calling thread.
func openKernel() (*kernel, error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_NETFILTER, unix.NETLINK_ROUTE)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	_, err = os.Stat("/proc/sys/net/ipv6")
	return &kernel{conn, nl, errors.Is(err, fs.ErrNotExist)}, nil
}

// close may be called more than once.
func (k *kernel) close() {
	k.conn.Close()
	if k.nl != nil {
		k.nl.Close()
	}
	k.nl = nil
}

func tableOf(f nft.Family) nft.Table { return nft.Table{Family: f, Name: tableName} }

// apply makes the changes, in one transaction for all tables (P2).
func (k *kernel) apply(ctx context.Context, tables []Changes) error {
	if k.noIPv6 {
		tables = slices.DeleteFunc(slices.Clone(tables), func(c Changes) bool { return c.Family == nft.IPv6 })
	}
	var b nft.Batch
	for i := range tables {
		c := &tables[i]
		switch {
		case c.Full:
			if err := k.renew(&b, c); err != nil {
				return err
			}
		case !c.Empty():
			writeChanges(&b, c)
		}
	}
	err := k.conn.Commit(ctx, &b)
	if err == nil || !slices.ContainsFunc(tables, func(c Changes) bool { return c.Full }) {
		return err
	}
	// Something in our tables was not what we can build upon: begin anew.
	if rebuildErr := k.rebuild(ctx, tables); rebuildErr != nil {
		return errors.Join(err, rebuildErr)
	}
	return nil
}

// renew makes the table what it ought to be, whatever it is now. What clients
// it remembers for session affinity stays (P3).
func (k *kernel) renew(b *nft.Batch, c *Changes) error {
	t := tableOf(c.Family)
	b.AddTable(t)
	exists, err := k.conn.Has(t)
	if err != nil {
		return err
	}
	var old []string
	keep := map[string]bool{}
	if exists {
		if old, keep, err = k.empty(b, t); err != nil {
			return err
		}
	}
	writeSets(b, t, keep)
	writeChanges(b, c)
	for _, name := range old {
		if !slices.ContainsFunc(c.Chains, func(ch Chain) bool { return ch.Name == name }) {
			b.DelChain(t, name)
		}
	}
	return nil
}

// empty takes the content out of an existing table: the rules of all chains,
// and all sets that are not as they should be. It returns the chains, and the
// sets that were emptied and kept.
func (k *kernel) empty(b *nft.Batch, t nft.Table) (chains []string, keep map[string]bool, err error) {
	if chains, err = k.conn.Chains(t); err != nil {
		return nil, nil, err
	}
	for _, name := range chains {
		b.FlushChain(t, name)
	}
	found, err := k.conn.Sets(t)
	if err != nil {
		return nil, nil, err
	}
	want := map[string]nft.Set{affinitySet: kernelAffinitySet(t.Family)}
	for s := range setCount {
		want[s.String()] = kernelSet(s, t.Family)
	}
	keep = map[string]bool{}
	for _, f := range found {
		switch w, ok := want[f.Name]; {
		case !ok || !f.Matches(w):
			b.DelSet(t, f.Name)
		case f.Name == affinitySet:
			keep[f.Name] = true
		default:
			b.FlushSet(t, f.Name)
			keep[f.Name] = true
		}
	}
	return chains, keep, nil
}

func writeSets(b *nft.Batch, t nft.Table, keep map[string]bool) {
	for s := range setCount {
		if !keep[s.String()] {
			b.AddSet(t, kernelSet(s, t.Family))
		}
	}
	if !keep[affinitySet] {
		b.AddSet(t, kernelAffinitySet(t.Family))
	}
}

// rebuild replaces the tables by new ones.
func (k *kernel) rebuild(ctx context.Context, tables []Changes) error {
	var b nft.Batch
	for i := range tables {
		c := &tables[i]
		t := tableOf(c.Family)
		b.AddTable(t) // so that the deletion cannot fail
		b.DelTable(t)
		b.AddTable(t)
		writeSets(&b, t, nil)
		writeChanges(&b, c)
	}
	return k.conn.Commit(ctx, &b)
}

// writeChanges writes the changes in an order in which nothing refers to what
// does not exist yet or any more.
func writeChanges(b *nft.Batch, c *Changes) {
	t := tableOf(c.Family)
	for _, ch := range c.Chains {
		b.AddChain(t, ch.Name, ch.Hook)
	}
	bySet(c.Del, func(set Set, elems []nft.Elem) { b.DelElems(t, set.String(), elems) })
	for _, ch := range c.Chains {
		b.FlushChain(t, ch.Name)
		for _, r := range ch.Rules {
			var exprs []nft.Expr
			for _, s := range r {
				exprs = append(exprs, s.lower(t, b)...)
			}
			b.AddNotedRule(t, ch.Name, r.note(), exprs...)
		}
	}
	bySet(c.Add, func(set Set, elems []nft.Elem) { b.AddElems(t, set.String(), elems) })
	for _, name := range c.DelChains {
		b.FlushChain(t, name) // they may refer to each other
	}
	for _, name := range c.DelChains {
		b.DelChain(t, name)
	}
}

func bySet(elems []Elem, fn func(Set, []nft.Elem)) {
	var lists [setCount][]nft.Elem
	for i := range elems {
		lists[elems[i].Set] = append(lists[elems[i].Set], kernelElem(&elems[i]))
	}
	for s, list := range lists {
		if len(list) > 0 {
			fn(Set(s), list)
		}
	}
}

func kernelElem(e *Elem) nft.Elem {
	key := make(nft.Key, 0, 32)
	switch e.Set {
	case Picks:
		key = key.Integer(e.Index)
	case ServiceEndpoints:
		key = key.Addr(e.Addr).Proto(uint8(e.Proto)).Port(e.Port).Integer(e.Index)
	case ClusterIPs:
		key = key.Addr(e.Addr)
	case Hairpin:
		key = key.Addr(e.Addr).Addr(e.Addr)
	case NodePorts, HostPorts, MasqueradePorts:
		key = key.Proto(uint8(e.Proto)).Port(e.Port)
	default:
		key = key.Addr(e.Addr).Proto(uint8(e.Proto)).Port(e.Port)
	}
	n := nft.Elem{Key: key}
	switch {
	case e.Set == ServicePicks:
		n.Data = slices.Clone(unused).Integer(e.Count)
	case e.To.IsValid():
		n.Data = nft.Key(nil).Addr(e.To.Addr()).Port(e.To.Port())
	case e.Drop:
		n.Code = nft.Drop
	case e.Goto != "":
		n.Code, n.Chain = nft.Goto, e.Goto
	}
	return n
}

// endStale ends the UDP flows to ports of ours that go where they may not (any
// more). The next packet of such a client is looked up as that of a new one.
// It returns how many it ended.
func (k *kernel) endStale(flows []flow) (int, error) {
	if len(flows) == 0 {
		return 0, nil
	}
	ended := 0
	var failed error
	for _, f := range families {
		match := newStaleFilter(flows, f)
		if match.empty() {
			continue
		}
		if len(match.ports) > 0 {
			if err := k.localAddrs(f, match.local); err != nil {
				return ended, err
			}
		}
		family := netlink.InetFamily(netlink.FAMILY_V4)
		if f == nft.IPv6 {
			family = netlink.FAMILY_V6
		}
		n, err := k.nl.ConntrackDeleteFilters(netlink.ConntrackTable, family, match)
		ended += int(n)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("end stale UDP flows (%s): %w", f, err))
		}
	}
	return ended, failed
}

func (k *kernel) localAddrs(f nft.Family, into map[netip.Addr]bool) error {
	family := netlink.FAMILY_V4
	if f == nft.IPv6 {
		family = netlink.FAMILY_V6
	}
	list, err := k.nl.AddrList(nil, family)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range list {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			into[ip.Unmap()] = true
		}
	}
	return nil
}

// staleFilter picks the connection tracking entries to be ended.
type staleFilter struct {
	addrs map[netip.AddrPort][]netip.AddrPort // where flows to an address and port may go
	ports map[uint16][]netip.AddrPort         // the same for ports of this node
	local map[netip.Addr]bool                 // the node's addresses
}

func newStaleFilter(flows []flow, f nft.Family) *staleFilter {
	s := &staleFilter{map[netip.AddrPort][]netip.AddrPort{}, map[uint16][]netip.AddrPort{}, map[netip.Addr]bool{}}
	for _, fl := range flows {
		switch {
		case fl.Family != f:
		case fl.Addr.IsValid():
			s.addrs[netip.AddrPortFrom(fl.Addr, fl.Port)] = fl.Valid
		default:
			s.ports[fl.Port] = fl.Valid
		}
	}
	return s
}

func (s *staleFilter) empty() bool { return len(s.addrs)+len(s.ports) == 0 }

// MatchConntrackFlow says whether the flow is to be ended.
func (s *staleFilter) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	if f.Forward.Protocol != uint8(UDP) {
		return false
	}
	dst, ok := netip.AddrFromSlice(f.Forward.DstIP)
	if !ok {
		return false
	}
	dst = dst.Unmap()
	valid, ours := s.addrs[netip.AddrPortFrom(dst, f.Forward.DstPort)]
	if !ours && s.local[dst] {
		valid, ours = s.ports[f.Forward.DstPort]
	}
	if !ours {
		return false
	}
	// Who answers is where the flow goes.
	src, ok := netip.AddrFromSlice(f.Reverse.SrcIP)
	return ok && !slices.Contains(valid, netip.AddrPortFrom(src.Unmap(), f.Reverse.SrcPort))
}

// Reset removes the tables from the network namespace of the calling thread.
// It returns what it removed, for people. Nothing else is on the host from this package.
func Reset(ctx context.Context) (removed []string, err error) {
	conn, err := nft.Open()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var b nft.Batch
	for _, f := range families {
		t := tableOf(f)
		found, err := conn.Has(t)
		if err != nil {
			return nil, err
		}
		if found {
			b.DelTable(t)
			removed = append(removed, "nftables table "+t.String())
		}
	}
	if err := conn.Commit(ctx, &b); err != nil {
		return nil, err
	}
	return removed, nil
}
