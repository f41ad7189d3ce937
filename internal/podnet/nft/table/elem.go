package table

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
)

// Set declares a named set or map. Elements refer to it, so there is one of it.
type Set struct {
	nft.Set
	// Keep says that rules fill the set: what is in it is no part of the model, and
	// stays when the table is written anew.
	Keep bool
	// Show is how people read an element whose bytes say little; optional.
	Show func(Elem) string
}

// ID names an element of a table.
type ID struct {
	Set *Set
	// Key is what nft.Key joins; in interval sets it is what Range joins.
	Key string
}

// Elem is an element. Value is what a map has for the key, as nft.Key joins it, or
// one of the verdicts below in a verdict map; it is empty in sets.
type Elem struct {
	ID
	Value string
}

// Verdicts of elements of verdict maps; see also Goto and Jump.
const (
	Drop   = "\x01" // nft.Drop
	Accept = "\x02" // nft.Accept
	Return = "\x05" // nft.Return
)

// Goto is the verdict to go on in a chain and not come back.
func Goto(chain string) string { return string(rune(nft.Goto)) + chain }

// Jump is the verdict to go on in a chain and come back at its end.
func Jump(chain string) string { return string(rune(nft.Jump)) + chain }

// Range is the key of an element that is all from first to last.
func Range(first, last nft.Key) string { return string(first) + string(last) }

// Prefix is the key of an element that is all addresses of the prefix.
func Prefix(p netip.Prefix) string { return Range(Bounds(p)) }

// Bounds are the first and the last address of a prefix, for Range.
func Bounds(p netip.Prefix) (first, last nft.Key) {
	first = nft.Key(nil).Addr(p.Masked().Addr())
	last = nft.Key(nil).Addr(p.Masked().Addr())
	for i := p.Bits(); i < len(last)*8; i++ {
		last[i/8] |= 0x80 >> (i % 8)
	}
	return first, last
}

// verdict takes the value of an element of a verdict map apart.
func verdict(value string) (code nft.Code, chain string) {
	if value == "" {
		return nft.None, ""
	}
	return nft.Code(value[0]), value[1:]
}

// holdsVerdicts says whether the set is a verdict map.
func (s *Set) holdsVerdicts() bool { return len(s.Data) == 1 && s.Data[0] == nft.Verdict }

// String is the element as the set shows it, or as the nft program would write it,
// without the set.
func (e Elem) String() string {
	if e.Set.Show != nil {
		return e.Set.Show(e)
	}
	if e.Value == "" {
		return e.KeyText()
	}
	return e.KeyText() + " : " + e.ValueText()
}

// KeyText is the key as the nft program would write it.
func (e Elem) KeyText() string {
	var b strings.Builder
	if first, last, ranges := e.bounds(); ranges {
		writeRanges(&b, e.Set.Key, first, last)
	} else {
		writeFields(&b, e.Set.Key, first)
	}
	return b.String()
}

// ValueText is the value as the nft program would write it.
func (e Elem) ValueText() string {
	if e.Set.holdsVerdicts() {
		return VerdictText(verdict(e.Value))
	}
	var b strings.Builder
	writeFields(&b, e.Set.Data, e.Value)
	return b.String()
}

// bounds takes the key of an interval set's element apart.
func (id ID) bounds() (first, last string, ranges bool) {
	if !id.Set.Interval {
		return id.Key, "", false
	}
	half := len(id.Key) / 2
	return id.Key[:half], id.Key[half:], true
}

// VerdictText is a verdict as the nft program writes it.
func VerdictText(code nft.Code, chain string) string {
	switch code {
	case nft.Drop:
		return "drop"
	case nft.Accept:
		return "accept"
	case nft.Jump:
		return "jump " + chain
	case nft.Goto:
		return "goto " + chain
	case nft.Return:
		return "return"
	}
	return "continue"
}

func writeFields(b *strings.Builder, fields []nft.Field, v string) {
	for i, f := range fields {
		if i > 0 {
			b.WriteString(" . ")
		}
		n := min(f.Size(), len(v))
		b.WriteString(fieldText(f, v[:n]))
		v = v[min(n+padding(n), len(v)):]
	}
}

// writeRanges writes what lies between two keys, field by field.
func writeRanges(b *strings.Builder, fields []nft.Field, first, last string) {
	for i, f := range fields {
		if i > 0 {
			b.WriteString(" . ")
		}
		n := min(f.Size(), len(first), len(last))
		from, to := fieldText(f, first[:n]), fieldText(f, last[:n])
		b.WriteString(from)
		if to != from {
			b.WriteString("-" + to)
		}
		next := min(n+padding(n), len(first), len(last))
		first, last = first[next:], last[next:]
	}
}

// padding is what fills a field up to whole registers.
func padding(n int) int { return -n & 3 }

func fieldText(f nft.Field, v string) string {
	if len(v) < f.Size() {
		return fmt.Sprintf("%x", v)
	}
	switch f {
	case nft.Addr4, nft.Addr6:
		a, _ := netip.AddrFromSlice([]byte(v))
		return a.String()
	case nft.Mac:
		return net.HardwareAddr(v).String()
	case nft.Proto:
		return ProtoText(v[0])
	case nft.Port:
		return strconv.Itoa(int(binary.BigEndian.Uint16([]byte(v))))
	case nft.Integer:
		return strconv.FormatUint(uint64(binary.NativeEndian.Uint32([]byte(v))), 10)
	case nft.IfName:
		return strings.TrimRight(v, "\x00")
	}
	return fmt.Sprintf("%x", v)
}

// ProtoText is the name of a transport protocol.
func ProtoText(p uint8) string {
	switch p {
	case unix.IPPROTO_TCP:
		return "tcp"
	case unix.IPPROTO_UDP:
		return "udp"
	case unix.IPPROTO_SCTP:
		return "sctp"
	case unix.IPPROTO_ICMP:
		return "icmp"
	case unix.IPPROTO_ICMPV6:
		return "icmpv6"
	}
	return fmt.Sprintf("proto-%d", p)
}

// wire yields the element as a batch takes it, and says whether more is wanted. Interval sets of one
// field take two where a range has an end: the other is the key behind it. Its bytes are in scratch, which is
// returned for the next element.
func (e *Elem) wire(scratch []byte, yield func(nft.Elem) bool) (_ []byte, more bool) {
	first, last, ranges := e.bounds()
	scratch = append(append(append(scratch[:0], first...), last...), e.Value...)
	end := len(first) + len(last)
	n := nft.Elem{Key: scratch[:len(first):len(first)]}
	switch {
	case e.Set.holdsVerdicts():
		n.Code, n.Chain = verdict(e.Value)
	case e.Value != "":
		n.Data = scratch[end:]
	}
	if ranges && len(e.Set.Key) > 1 {
		n.Last = scratch[len(first):end:end]
	}
	if !yield(n) {
		return scratch, false
	}
	if ranges && len(e.Set.Key) == 1 {
		if next, behind := after(last); behind {
			return scratch, yield(nft.Elem{Key: next, End: true})
		}
	}
	return scratch, true
}

// after is the key that follows; there is none after the last one there is.
func after(key string) (next []byte, more bool) {
	next = []byte(key)
	for i := len(next) - 1; i >= 0; i-- {
		next[i]++
		if next[i] != 0 {
			return next, true
		}
	}
	return nil, false
}
