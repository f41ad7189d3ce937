package netpolicy

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// fields says which parts of a packet make up the key of a lookup.
type fields struct {
	source, destination bool
	port                bool // and protocol
}

var (
	source      = fields{source: true}
	destination = fields{destination: true}
	both        = fields{source: true, destination: true}
)

func (k fields) text(f nft.Family) string {
	var words []string
	if k.source {
		words = append(words, f.String()+" saddr")
	}
	if k.destination {
		words = append(words, f.String()+" daddr")
	}
	if k.port {
		words = append(words, "meta l4proto", "th dport")
	}
	return strings.Join(words, " . ")
}

// load puts the key into the registers from R0 on and returns the register behind it.
func (k fields) load(f nft.Family) (e []nft.Expr, next nft.Reg) {
	next = nft.R0
	if k.source {
		e = append(e, nft.SourceAddr(f, next))
		next += addrRegs(f)
	}
	if k.destination {
		e = append(e, nft.DestinationAddr(f, next))
		next += addrRegs(f)
	}
	if k.port {
		e = append(e, nft.TransportProto(next), nft.DestinationPort(next+1))
		next += 2
	}
	return e, next
}

// addrRegs is how many registers an address takes.
func addrRegs(f nft.Family) nft.Reg {
	if f == nft.IPv6 {
		return 4
	}
	return 1
}

// in holds if the set has the key. about says to people what the set is.
type in struct {
	key   fields
	set   *table.Set
	about string
}

// longestNote is how long a note of a rule may be.
const longestNote = 127

// Note implements table.Noter.
func (s in) Note() string {
	if len(s.about) > longestNote {
		return s.about[:longestNote-3] + "..."
	}
	return s.about
}

func (s in) Text(f nft.Family) string { return fmt.Sprintf("%s @%s", s.key.text(f), s.set.Name) }

func (s in) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, _ := s.key.load(t.Family)
	return append(e, nft.In(nft.Named(s.set.Name), nft.R0))
}

// profileJump calls the chain of the profile that an address has, if it has one. What the
// first map has is a number, and not itself a verdict, because the kernel checks the whole
// table for loops when a verdict changes.
//
// The nft program cannot list what looks up that which another lookup has found, but takes
// note only of the register in which a value begins: so an unused word goes before the
// number, and the program lists what is loaded where the number will be.
type profileJump struct {
	key               fields
	targets, profiles *table.Set
}

func (s profileJump) Text(f nft.Family) string {
	return fmt.Sprintf("%s map @%s vmap @%s", s.key.text(f), s.targets.Name, s.profiles.Name)
}

// Note implements table.Noter.
func (s profileJump) Note() string {
	return "by the number that @" + s.targets.Name + " has for the pod"
}

func (s profileJump) Lower(t nft.Table, _ *nft.Batch) []nft.Expr {
	e, found := s.key.load(t.Family)
	return append(e,
		nft.DestinationAddr(t.Family, found+1), // for the nft program
		nft.MapTo(nft.Named(s.targets.Name), nft.R0, found),
		nft.VerdictMap(nft.Named(s.profiles.Name), found+1))
}

// portIn holds if protocol and port of the destination are one of the list: single ports, or one
// range.
type portIn struct{ list []portRange }

func (s portIn) Text(nft.Family) string {
	words := make([]string, len(s.list))
	for i, r := range s.list {
		words[i] = fmt.Sprintf("%s . %d", r.proto, r.first)
		if r.first != r.last {
			words[i] = fmt.Sprintf("%s . %d-%d", r.proto, r.first, r.last)
		}
	}
	return "meta l4proto . th dport { " + strings.Join(words, ", ") + " }"
}

func (s portIn) Lower(t nft.Table, b *nft.Batch) []nft.Expr {
	if len(s.list) > 1 {
		elems := make([]nft.Elem, len(s.list))
		for i, r := range s.list {
			elems[i] = nft.Elem{Key: nft.Key(nil).Proto(uint8(r.proto)).Port(r.first)}
		}
		set := b.AnonymousSet(t, nft.Set{Key: []nft.Field{nft.Proto, nft.Port}}, elems)
		return []nft.Expr{nft.TransportProto(nft.R0), nft.DestinationPort(nft.R0 + 1), nft.In(set, nft.R0)}
	}
	r := s.list[0]
	e := []nft.Expr{nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{byte(r.proto)})}
	first, last := nft.Key(nil).Port(r.first)[:2], nft.Key(nil).Port(r.last)[:2]
	switch {
	case r.whole():
		return e
	case r.first == r.last:
		return append(e, nft.DestinationPort(nft.R0), nft.Equal(nft.R0, first))
	}
	return append(e, nft.DestinationPort(nft.R0), nft.AtLeast(nft.R0, first), nft.AtMost(nft.R0, last))
}

// known holds for packets of connections that exist, and for errors that belong to one.
type known struct{}

func (known) Text(nft.Family) string { return "ct state established,related" }

func (known) Lower(nft.Table, *nft.Batch) []nft.Expr {
	return append([]nft.Expr{nft.ConnState(nft.R0)}, nft.HasBits(nft.R0, nft.StateEstablished|nft.StateRelated)...)
}

// reply holds for packets to who began the connection.
type reply struct{}

func (reply) Text(nft.Family) string { return "ct direction reply" }

func (reply) Lower(nft.Table, *nft.Batch) []nft.Expr { return nft.IsReply(nft.R0) }

// stray holds for TCP packets of connections that are not known and do not begin one.
type stray struct{}

func (stray) Text(nft.Family) string {
	return "ct state new meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn"
}

func (stray) Lower(nft.Table, *nft.Batch) []nft.Expr {
	const fin, syn, rst, ack = 1, 2, 4, 16
	e := append([]nft.Expr{nft.ConnState(nft.R0)}, nft.HasBits(nft.R0, nft.StateNew)...)
	return append(e,
		nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{unix.IPPROTO_TCP}),
		nft.TransportHeader(nft.R0, 13, 1), nft.Mask(nft.R0, []byte{fin | syn | rst | ack}), nft.NotEqual(nft.R0, []byte{syn}))
}

// reset answers TCP packets with a reset.
type reset struct{}

func (reset) Text(nft.Family) string { return "meta l4proto tcp reject with tcp reset" }

func (reset) Lower(nft.Table, *nft.Batch) []nft.Expr {
	return []nft.Expr{nft.TransportProto(nft.R0), nft.Equal(nft.R0, []byte{unix.IPPROTO_TCP}), nft.RejectTCP()}
}

// verdict ends the rule.
type verdict struct {
	code  nft.Code
	chain string
}

func (s verdict) Text(nft.Family) string {
	switch s.code {
	case nft.Drop:
		return "drop"
	case nft.Return:
		return "return"
	case nft.Goto:
		return "goto " + s.chain
	}
	return "accept"
}

func (s verdict) Lower(nft.Table, *nft.Batch) []nft.Expr { return []nft.Expr{nft.Do(s.code, s.chain)} }

// counter counts the packets that get this far, for people who look at the rules.
type counter struct{}

func (counter) Text(nft.Family) string                 { return "counter" }
func (counter) Lower(nft.Table, *nft.Batch) []nft.Expr { return []nft.Expr{nft.Counter()} }
