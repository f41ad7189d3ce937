package proxy

import (
	"fmt"
	"net/netip"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

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

func (k fields) Text(f nft.Family) string {
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

func (s in) Text(f nft.Family) string { return fmt.Sprintf("%s @%s", s.key.Text(f), s.set) }

func (s in) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, _ := s.key.load(t.Family)
	return append(e, nft.In(nft.Named(s.set.String()), nft.R0))
}

// dnatMap sends the connection where the map says, if it has the key.
type dnatMap struct {
	key fields
	set Set
}

func (s dnatMap) Text(f nft.Family) string {
	return fmt.Sprintf("dnat to %s map @%s", s.key.Text(f), s.set)
}

func (s dnatMap) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, _ := s.key.load(t.Family)
	return append(e,
		nft.MapTo(nft.Named(s.set.String()), nft.R0, nft.R0),
		nft.DNAT(t.Family, nft.R0, nft.R0+addrRegs(t.Family)))
}

// from holds if the source is in the prefix, or with not if it is not.
type from struct {
	prefix netip.Prefix
	not    bool
}

func (s from) Text(f nft.Family) string {
	op := ""
	if s.not {
		op = "!= "
	}
	return fmt.Sprintf("%s saddr %s%s", f, op, s.prefix)
}

func (s from) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	load := []nft.Expr{nft.SourceAddr(t.Family, nft.R0)}
	if s.not {
		return append(load, nft.NotInPrefix(nft.R0, s.prefix)...)
	}
	return append(load, nft.InPrefix(nft.R0, s.prefix)...)
}

// to holds if the destination is in the prefix.
type to struct{ prefix netip.Prefix }

func (s to) Text(f nft.Family) string { return fmt.Sprintf("%s daddr %s", f, s.prefix) }

func (s to) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return append([]nft.Expr{nft.DestinationAddr(t.Family, nft.R0)}, nft.InPrefix(nft.R0, s.prefix)...)
}

// toLocal holds if the destination is an address of this node, fromLocal if
// the source is one.
type (
	toLocal   struct{}
	fromLocal struct{}
)

func (toLocal) Text(nft.Family) string { return "fib daddr type local" }

func (toLocal) Lower(nft.Table, *nft.Batch) []nft.Expr { return nft.DestinationIsLocal(nft.R0) }

func (fromLocal) Text(nft.Family) string { return "fib saddr type local" }

func (fromLocal) Lower(nft.Table, *nft.Batch) []nft.Expr { return nft.SourceIsLocal(nft.R0) }

// redirected holds if the connection's destination was changed.
type redirected struct{}

func (redirected) Text(nft.Family) string { return "ct status dnat" }

func (redirected) Lower(nft.Table, *nft.Batch) []nft.Expr {
	return append([]nft.Expr{nft.ConnStatus(nft.R0)}, nft.HasBits(nft.R0, nft.StatusDNAT)...)
}

// invalid holds if the packet is none of a connection, nor the first of one.
type invalid struct{}

func (invalid) Text(nft.Family) string { return "ct state invalid" }

func (invalid) Lower(nft.Table, *nft.Batch) []nft.Expr {
	return append([]nft.Expr{nft.ConnState(nft.R0)}, nft.HasBits(nft.R0, nft.StateInvalid)...)
}

// verdict ends the rule.
type verdict struct {
	code  nft.Code
	chain string
}

func (s verdict) Text(nft.Family) string {
	return table.VerdictText(s.code, s.chain)
}

func (s verdict) Lower(nft.Table, *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.Do(s.code, s.chain)}
}

// masquerade gives the connection this node's address as its source.
type masquerade struct{}

func (masquerade) Text(nft.Family) string { return "masquerade fully-random" }

func (masquerade) Lower(nft.Table, *nft.Batch) []nft.Expr { return []nft.Expr{nft.Masquerade()} }

// rejectTCP answers TCP packets with a reset; reject answers any packet with
// "port unreachable".
type (
	rejectTCP struct{}
	reject    struct{}
)

func (rejectTCP) Text(nft.Family) string { return "meta l4proto tcp reject with tcp reset" }

func (rejectTCP) Lower(nft.Table, *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{byte(TCP)}), nft.RejectTCP()}
}

func (reject) Text(nft.Family) string { return "reject with port-unreachable" }

func (reject) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.RejectPort(t.Family)}
}
