package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// Statement is one step of a rule. It can be written as text, which says all
// there is to it (two statements with the same text are the same), and
// as what the kernel runs. Registers hold nothing from one statement to the next.
type Statement interface {
	text(f nft.Family) string
	// lower returns the expressions. Sets that they bring along are added to b,
	// which must be followed by the rule.
	lower(t nft.Table, b *nft.Batch) []nft.Expr
}

// fields says which parts of a packet make up the key of a lookup.
type fields uint8

const (
	destination         fields = iota // ip daddr . meta l4proto . th dport
	destinationPort                   // meta l4proto . th dport
	destinationAddr                   // ip daddr
	sourceAndAddr                     // ip saddr . ip daddr
	originalDestination               // as destination, before any NAT
	originalPort                      // as destinationPort, before any NAT
	originalAddr                      // as destinationAddr, before any NAT
)

func (k fields) text(f nft.Family) string {
	switch k {
	case destination:
		return fmt.Sprintf("%s daddr . meta l4proto . th dport", f)
	case destinationPort:
		return "meta l4proto . th dport"
	case destinationAddr:
		return fmt.Sprintf("%s daddr", f)
	case sourceAndAddr:
		return fmt.Sprintf("%s saddr . %s daddr", f, f)
	case originalDestination:
		return fmt.Sprintf("ct original %s daddr . meta l4proto . ct original proto-dst", f)
	case originalPort:
		return "meta l4proto . ct original proto-dst"
	}
	return fmt.Sprintf("ct original %s daddr", f)
}

// load puts the key into the registers from R0 on and returns the register
// behind it.
func (k fields) load(f nft.Family) ([]nft.Expr, nft.Reg) {
	addr := addrRegs(f)
	switch k {
	case destination:
		return []nft.Expr{nft.DestinationAddr(f, nft.R0), nft.TransportProto(nft.R0 + addr), nft.DestinationPort(nft.R0 + addr + 1)}, nft.R0 + addr + 2
	case destinationPort:
		return []nft.Expr{nft.TransportProto(nft.R0), nft.DestinationPort(nft.R0 + 1)}, nft.R0 + 2
	case destinationAddr:
		return []nft.Expr{nft.DestinationAddr(f, nft.R0)}, nft.R0 + addr
	case sourceAndAddr:
		return []nft.Expr{nft.SourceAddr(f, nft.R0), nft.DestinationAddr(f, nft.R0+addr)}, nft.R0 + 2*addr
	case originalDestination:
		return []nft.Expr{nft.OriginalDestination(f, nft.R0), nft.TransportProto(nft.R0 + addr), nft.OriginalPort(nft.R0 + addr + 1)}, nft.R0 + addr + 2
	case originalPort:
		return []nft.Expr{nft.TransportProto(nft.R0), nft.OriginalPort(nft.R0 + 1)}, nft.R0 + 2
	}
	return []nft.Expr{nft.OriginalDestination(f, nft.R0)}, nft.R0 + addr
}

// hidden loads the destination into the registers from r on, to be overwritten at
// once by what a map has: an unused word, and then an address and a port, or a
// number, which thus begins at r. Only the nft program is meant to see it.
//
// That program cannot list a rule which looks up what another lookup found, or
// which stores it: up to its present version it ends with a failed assertion.
// But it takes note only of the register in which a value begins. So the lookup is
// made to begin one register earlier, and what nft lists for the rest is what is
// loaded here; the rule has a note that says what it really is.
func hidden(f nft.Family, r nft.Reg) []nft.Expr {
	return []nft.Expr{nft.DestinationAddr(f, r), nft.DestinationPort(r + addrRegs(f))}
}

// unused is the word before a value that is found by a hidden lookup.
var unused = nft.Key(nil).Integer(0)

// noter is a statement that the nft program lists as something else. Its note
// says what it does.
type noter interface{ note() string }

// note joins the notes of a rule's statements.
func (r Rule) note() string {
	var notes []string
	for _, s := range r {
		if n, ok := s.(noter); ok && n.note() != "" {
			notes = append(notes, n.note())
		}
	}
	return strings.Join(notes, "; ")
}

// addrRegs is how many registers an address takes.
func addrRegs(f nft.Family) nft.Reg {
	if f == nft.IPv6 {
		return 4
	}
	return 1
}

// in holds if the set has the key.
type in struct {
	key fields
	set Set
}

func (s in) text(f nft.Family) string { return fmt.Sprintf("%s @%s", s.key.text(f), s.set) }

func (s in) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, _ := s.key.load(t.Family)
	return append(e, nft.In(nft.Named(s.set.String()), nft.R0))
}

// vmap does what the map says for the key, if it has it.
type vmap struct {
	key fields
	set Set
}

func (s vmap) text(f nft.Family) string { return fmt.Sprintf("%s vmap @%s", s.key.text(f), s.set) }

func (s vmap) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, _ := s.key.load(t.Family)
	return append(e, nft.VerdictMap(nft.Named(s.set.String()), nft.R0))
}

// count does what the pick map says for the number of endpoints of the
// destination, if that is a plain service port. The number is a value and not
// itself a verdict, because the kernel checks the whole table for loops when a verdict changes.
type count struct{}

func (count) text(f nft.Family) string {
	return fmt.Sprintf("%s map @%s vmap @%s", destination.text(f), ServicePicks, Picks)
}

func (count) note() string { return "by what @service-picks has for the destination" }

func (count) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, found := destination.load(t.Family)
	return append(e,
		nft.DestinationAddr(t.Family, found+1), // see hidden
		nft.MapTo(nft.Named(ServicePicks.String()), nft.R0, found),
		nft.VerdictMap(nft.Named(Picks.String()), found+1))
}

// dnatMap sends the connection where the map says, if it has the key.
type dnatMap struct {
	key fields
	set Set
}

func (s dnatMap) text(f nft.Family) string {
	return fmt.Sprintf("dnat to %s map @%s", s.key.text(f), s.set)
}

func (s dnatMap) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, _ := s.key.load(t.Family)
	return append(e,
		nft.MapTo(nft.Named(s.set.String()), nft.R0, nft.R0),
		nft.DNAT(t.Family, nft.R0, nft.R0+addrRegs(t.Family)))
}

// pick sends the connection to one of the first n endpoints of its destination.
type pick struct{ n uint32 }

func (s pick) text(f nft.Family) string {
	return fmt.Sprintf("dnat to %s . numgen random mod %d map @%s", destination.text(f), s.n, ServiceEndpoints)
}

func (s pick) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, index := destination.load(t.Family)
	return append(e,
		nft.Random(index, s.n),
		nft.MapTo(nft.Named(ServiceEndpoints.String()), nft.R0, nft.R0),
		nft.DNAT(t.Family, nft.R0, nft.R0+addrRegs(t.Family)))
}

// sticky is the affinity of clients to endpoints of one service port, which
// is named by its cluster IP.
type sticky struct {
	service netip.AddrPort
	proto   Proto
	timeout time.Duration
}

func (s *sticky) text(f nft.Family) string {
	return fmt.Sprintf("%s saddr . %s . %s . %d", f, s.service.Addr(), s.proto, s.service.Port())
}

// load puts the key of the affinity set into the registers from R0 on.
func (s *sticky) load(f nft.Family) ([]nft.Expr, nft.Reg) {
	addr := addrRegs(f)
	return []nft.Expr{
		nft.SourceAddr(f, nft.R0),
		nft.Load(nft.R0+addr, nft.Key(nil).Addr(s.service.Addr())),
		nft.Load(nft.R0+2*addr, nft.Key(nil).Proto(uint8(s.proto))[:1]),
		nft.Load(nft.R0+2*addr+1, nft.Key(nil).Port(s.service.Port())[:2]),
	}, nft.R0 + 2*addr + 2
}

// recall sends the connection where the client's last one went, if that still
// is one of the endpoints.
type recall struct {
	sticky
	to []netip.AddrPort
}

func (s recall) text(f nft.Family) string {
	return fmt.Sprintf("dnat to %s map @%s in { %s } update timeout %s",
		s.sticky.text(f), affinitySet, endpointsText(s.to), s.timeout)
}

func (s recall) lower(t nft.Table, b *nft.Batch) []nft.Expr {
	valid := make([]nft.Elem, len(s.to))
	for i, ep := range s.to {
		valid[i] = nft.Elem{Key: nft.Key(nil).Addr(ep.Addr()).Port(ep.Port())}
	}
	set := b.AnonymousSet(t, nft.Set{Key: []nft.Field{nft.AddrOf(t.Family), nft.Port}}, valid)
	affinity := nft.Named(affinitySet)
	e, found := s.load(t.Family)
	to := found + 1
	e = append(e, hidden(t.Family, to)...)
	return append(e,
		nft.MapTo(affinity, nft.R0, found),
		nft.In(set, to),
		nft.Load(found, unused), // for nft, which would not list what was found there
		nft.Remember(affinity, nft.R0, found, s.timeout),
		nft.DNAT(t.Family, to, to+addrRegs(t.Family)))
}

func (recall) note() string {
	return "to what @affinity has for the client, if the service still has it"
}

// forget drops what is known of the client's last connection: the endpoint it
// went to is gone.
type forget struct{ sticky }

func (s forget) text(f nft.Family) string {
	return fmt.Sprintf("delete @%s { %s }", affinitySet, s.sticky.text(f))
}

func (s forget) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, value := s.load(t.Family)
	e = append(append(e, nft.Load(value, unused)), hidden(t.Family, value+1)...) // any value of the right length does
	return append(e, nft.Forget(nft.Named(affinitySet), nft.R0, value))
}

// choose sends the connection to one of the endpoints. With sticky it is
// remembered for the client.
type choose struct {
	to     []netip.AddrPort
	sticky *sticky
}

func (s choose) text(f nft.Family) string {
	var b strings.Builder
	fmt.Fprintf(&b, "dnat to numgen random mod %d map {", len(s.to))
	for i, ep := range s.to {
		fmt.Fprintf(&b, " %d : %s", i, endpointText(ep))
		if i < len(s.to)-1 {
			b.WriteByte(',')
		}
	}
	b.WriteString(" }")
	if s.sticky != nil {
		fmt.Fprintf(&b, " update @%s { %s timeout %s }", affinitySet, s.sticky.text(f), s.sticky.timeout)
	}
	return b.String()
}

func (s choose) lower(t nft.Table, b *nft.Batch) []nft.Expr {
	addr := addrRegs(t.Family)
	if s.sticky == nil {
		set := s.numbered(t, b, nil)
		return []nft.Expr{
			nft.Random(nft.R0, uint32(len(s.to))),
			nft.MapTo(set, nft.R0, nft.R0),
			nft.DNAT(t.Family, nft.R0, nft.R0+addr),
		}
	}
	set := s.numbered(t, b, unused)
	affinity := nft.Named(affinitySet)
	e, found := s.sticky.load(t.Family)
	to := found + 1
	e = append(e, hidden(t.Family, to)...)
	return append(e,
		nft.Random(found, uint32(len(s.to))),
		nft.MapTo(set, found, found),
		nft.Load(found, unused), // for nft, which would not list what was found there
		nft.Remember(affinity, nft.R0, found, s.sticky.timeout),
		// What is remembered counts: another connection of the client may have
		// been quicker.
		nft.MapTo(affinity, nft.R0, found),
		nft.DNAT(t.Family, to, to+addr))
}

// numbered makes the map of the endpoints by their numbers. before is put
// before each endpoint.
func (s choose) numbered(t nft.Table, b *nft.Batch, before nft.Key) nft.Ref {
	elems := make([]nft.Elem, len(s.to))
	for i, ep := range s.to {
		elems[i] = nft.Elem{Key: nft.Key(nil).Integer(uint32(i)), Data: slices.Clone(before).Addr(ep.Addr()).Port(ep.Port())}
	}
	data := []nft.Field{nft.AddrOf(t.Family), nft.Port}
	if before != nil {
		data = append([]nft.Field{nft.Integer}, data...)
	}
	return b.AnonymousSet(t, nft.Set{Key: []nft.Field{nft.Integer}, Data: data}, elems)
}

func (s choose) note() string {
	if s.sticky == nil {
		return ""
	}
	return "to one of these, noted for the client in @affinity"
}

func endpointsText(eps []netip.AddrPort) string {
	words := make([]string, len(eps))
	for i, ep := range eps {
		words[i] = endpointText(ep)
	}
	return strings.Join(words, ", ")
}

// from holds if the source is in the prefix, or with not if it is not.
type from struct {
	prefix netip.Prefix
	not    bool
}

func (s from) text(f nft.Family) string {
	op := ""
	if s.not {
		op = "!= "
	}
	return fmt.Sprintf("%s saddr %s%s", f, op, s.prefix)
}

func (s from) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	load := []nft.Expr{nft.SourceAddr(t.Family, nft.R0)}
	if s.not {
		return append(load, nft.NotInPrefix(nft.R0, s.prefix)...)
	}
	return append(load, nft.InPrefix(nft.R0, s.prefix)...)
}

// to holds if the destination is in the prefix.
type to struct{ prefix netip.Prefix }

func (s to) text(f nft.Family) string { return fmt.Sprintf("%s daddr %s", f, s.prefix) }

func (s to) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return append([]nft.Expr{nft.DestinationAddr(t.Family, nft.R0)}, nft.InPrefix(nft.R0, s.prefix)...)
}

// toLocal holds if the destination is an address of this node, fromLocal if
// the source is one.
type (
	toLocal   struct{}
	fromLocal struct{}
)

func (toLocal) text(nft.Family) string { return "fib daddr type local" }

func (toLocal) lower(nft.Table, *nft.Batch) []nft.Expr { return nft.DestinationIsLocal(nft.R0) }

func (fromLocal) text(nft.Family) string { return "fib saddr type local" }

func (fromLocal) lower(nft.Table, *nft.Batch) []nft.Expr { return nft.SourceIsLocal(nft.R0) }

// redirected holds if the connection's destination was changed.
type redirected struct{}

func (redirected) text(nft.Family) string { return "ct status dnat" }

func (redirected) lower(nft.Table, *nft.Batch) []nft.Expr {
	return append([]nft.Expr{nft.ConnStatus(nft.R0)}, nft.HasBits(nft.R0, nft.StatusDNAT)...)
}

// verdict ends the rule.
type verdict struct {
	code  nft.Code
	chain string
}

func (s verdict) text(nft.Family) string {
	switch s.code {
	case nft.Drop:
		return "drop"
	case nft.Jump:
		return "jump " + s.chain
	case nft.Goto:
		return "goto " + s.chain
	}
	return "accept"
}

func (s verdict) lower(nft.Table, *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.Do(s.code, s.chain)}
}

// masquerade gives the connection this node's address as its source.
type masquerade struct{}

func (masquerade) text(nft.Family) string { return "masquerade fully-random" }

func (masquerade) lower(nft.Table, *nft.Batch) []nft.Expr { return []nft.Expr{nft.Masquerade()} }

// rejectTCP answers TCP packets with a reset; reject answers any packet with
// "port unreachable".
type (
	rejectTCP struct{}
	reject    struct{}
)

func (rejectTCP) text(nft.Family) string { return "meta l4proto tcp reject with tcp reset" }

func (rejectTCP) lower(nft.Table, *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{byte(TCP)}), nft.RejectTCP()}
}

func (reject) text(nft.Family) string { return "reject with port-unreachable" }

func (reject) lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.RejectPort(t.Family)}
}
