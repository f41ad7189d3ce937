package nft

import (
	"encoding/binary"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Expr is one encoded expression of a rule. Expressions read and write the
// registers; one whose condition does not hold ends the rule.
type Expr []byte

// Reg is one of the 16 registers of 4 bytes. Longer values take several in a row.
type Reg uint32

// R0 is the first register; R0+15 is the last.
const R0 Reg = unix.NFT_REG32_00

// Code is a verdict.
type Code uint8

// The verdicts. None is the zero value.
const (
	None Code = iota
	Drop
	Accept
	Jump
	Goto
	Return
)

const (
	netfilterDrop   = 0 // NF_DROP
	netfilterAccept = 1 // NF_ACCEPT
)

func (c Code) wire() int32 {
	switch c {
	case Drop:
		return netfilterDrop
	case Accept:
		return netfilterAccept
	case Jump:
		return unix.NFT_JUMP
	case Goto:
		return unix.NFT_GOTO
	case Return:
		return unix.NFT_RETURN
	}
	return unix.NFT_CONTINUE
}

// expr starts an expression: the name, and the attributes that data holds.
func expr(name string, data []byte) Expr {
	e := appendAttr(nil, unix.NFTA_EXPR_NAME, append([]byte(name), 0))
	return appendAttr(e, unix.NLA_F_NESTED|unix.NFTA_EXPR_DATA, data)
}

// NetworkHeader loads bytes of the network header.
func NetworkHeader(to Reg, offset, n uint32) Expr {
	return payload(unix.NFT_PAYLOAD_NETWORK_HEADER, to, offset, n)
}

// TransportHeader loads bytes of the transport header.
func TransportHeader(to Reg, offset, n uint32) Expr {
	return payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, to, offset, n)
}

// SourceMac loads the address of the network card that a frame comes from.
func SourceMac(to Reg) Expr { return payload(unix.NFT_PAYLOAD_LL_HEADER, to, 6, 6) }

// EtherType loads what a frame carries.
func EtherType(to Reg) Expr { return Meta(unix.NFT_META_PROTOCOL, to) }

// DestinationPort loads the destination port of TCP, UDP or SCTP.
func DestinationPort(to Reg) Expr { return TransportHeader(to, 2, 2) }

// SourceAddr loads the source address of a packet of the family.
func SourceAddr(f Family, to Reg) Expr {
	if f == IPv6 {
		return NetworkHeader(to, 8, 16)
	}
	return NetworkHeader(to, 12, 4)
}

// DestinationAddr loads the destination address of a packet of the family.
func DestinationAddr(f Family, to Reg) Expr {
	if f == IPv6 {
		return NetworkHeader(to, 24, 16)
	}
	return NetworkHeader(to, 16, 4)
}

func payload(base uint32, to Reg, offset, n uint32) Expr {
	d := appendU32(nil, unix.NFTA_PAYLOAD_DREG, uint32(to))
	d = appendU32(d, unix.NFTA_PAYLOAD_BASE, base)
	d = appendU32(d, unix.NFTA_PAYLOAD_OFFSET, offset)
	return expr("payload", appendU32(d, unix.NFTA_PAYLOAD_LEN, n))
}

// Meta loads a fact about the packet (unix.NFT_META_*).
func Meta(key uint32, to Reg) Expr {
	d := appendU32(nil, unix.NFTA_META_KEY, key)
	return expr("meta", appendU32(d, unix.NFTA_META_DREG, uint32(to)))
}

// TransportProto loads the transport protocol.
func TransportProto(to Reg) Expr { return Meta(unix.NFT_META_L4PROTO, to) }

// Equal holds if the register has the value.
func Equal(r Reg, value []byte) Expr { return cmp(unix.NFT_CMP_EQ, r, value) }

// NotEqual holds if the register has another value.
func NotEqual(r Reg, value []byte) Expr { return cmp(unix.NFT_CMP_NEQ, r, value) }

func cmp(op uint32, r Reg, value []byte) Expr {
	d := appendU32(nil, unix.NFTA_CMP_SREG, uint32(r))
	d = appendU32(d, unix.NFTA_CMP_OP, op)
	return expr("cmp", appendAttr(d, unix.NLA_F_NESTED|unix.NFTA_CMP_DATA, appendAttr(nil, unix.NFTA_DATA_VALUE, value)))
}

// Mask keeps only the bits of mask in the register.
func Mask(r Reg, mask []byte) Expr {
	d := appendU32(nil, unix.NFTA_BITWISE_SREG, uint32(r))
	d = appendU32(d, unix.NFTA_BITWISE_DREG, uint32(r))
	d = appendU32(d, unix.NFTA_BITWISE_LEN, uint32(len(mask)))
	d = appendAttr(d, unix.NLA_F_NESTED|unix.NFTA_BITWISE_MASK, appendAttr(nil, unix.NFTA_DATA_VALUE, mask))
	zero := make([]byte, len(mask))
	return expr("bitwise", appendAttr(d, unix.NLA_F_NESTED|unix.NFTA_BITWISE_XOR, appendAttr(nil, unix.NFTA_DATA_VALUE, zero)))
}

// Load puts a constant into a register.
func Load(to Reg, value []byte) Expr {
	d := appendU32(nil, unix.NFTA_IMMEDIATE_DREG, uint32(to))
	return expr("immediate", appendAttr(d, unix.NLA_F_NESTED|unix.NFTA_IMMEDIATE_DATA, appendAttr(nil, unix.NFTA_DATA_VALUE, value)))
}

// Do ends the rule with a verdict. chain is for Jump and Goto.
func Do(code Code, chain string) Expr {
	var b Batch
	b.verdict(code, chain)
	d := appendU32(nil, unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
	return expr("immediate", appendAttr(d, unix.NLA_F_NESTED|unix.NFTA_IMMEDIATE_DATA, b.buf))
}

// In holds if the set has the key that starts at the register.
func In(set Ref, key Reg) Expr { return expr("lookup", lookup(set, key)) }

// NotIn holds if the set does not have the key.
func NotIn(set Ref, key Reg) Expr {
	return expr("lookup", appendU32(lookup(set, key), unix.NFTA_LOOKUP_FLAGS, unix.NFT_LOOKUP_F_INV))
}

// MapTo loads what the map has for the key; the rule ends if it has nothing.
func MapTo(set Ref, key, to Reg) Expr {
	return expr("lookup", appendU32(lookup(set, key), unix.NFTA_LOOKUP_DREG, uint32(to)))
}

// VerdictMap ends the rule with the verdict that the map has for the key, if any.
func VerdictMap(set Ref, key Reg) Expr { return MapTo(set, key, unix.NFT_REG_VERDICT) }

func lookup(set Ref, key Reg) []byte {
	d := appendAttr(nil, unix.NFTA_LOOKUP_SET, append([]byte(set.Name), 0))
	if set.id != 0 {
		d = appendU32(d, unix.NFTA_LOOKUP_SET_ID, set.id)
	}
	return appendU32(d, unix.NFTA_LOOKUP_SREG, uint32(key))
}

// Remember adds the key to a dynamic set, or, if it is there, starts its
// timeout anew. In a map the value at data is kept with a new key; the value of
// one that is there does not change. Pass data 0 for sets.
func Remember(set Ref, key, data Reg, timeout time.Duration) Expr {
	d := dynset(set, unix.NFT_DYNSET_OP_UPDATE, key)
	if data != 0 {
		d = appendU32(d, unix.NFTA_DYNSET_SREG_DATA, uint32(data))
	}
	d = appendAttr(d, unix.NFTA_DYNSET_TIMEOUT, binary.BigEndian.AppendUint64(nil, uint64(timeout.Milliseconds())))
	return expr("dynset", d)
}

// Forget deletes the key from a dynamic map, if it is there. data is not used,
// but the kernel insists on a register that holds something.
func Forget(set Ref, key, data Reg) Expr {
	d := dynset(set, dynsetDelete, key)
	return expr("dynset", appendU32(d, unix.NFTA_DYNSET_SREG_DATA, uint32(data)))
}

const dynsetDelete = 2 // NFT_DYNSET_OP_DELETE

func dynset(set Ref, op uint32, key Reg) []byte {
	d := appendAttr(nil, unix.NFTA_DYNSET_SET_NAME, append([]byte(set.Name), 0))
	d = appendU32(d, unix.NFTA_DYNSET_OP, op)
	return appendU32(d, unix.NFTA_DYNSET_SREG_KEY, uint32(key))
}

// Random loads a random number below n.
func Random(to Reg, n uint32) Expr {
	d := appendU32(nil, unix.NFTA_NG_DREG, uint32(to))
	d = appendU32(d, unix.NFTA_NG_MODULUS, n)
	d = appendU32(d, unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
	return expr("numgen", appendU32(d, unix.NFTA_NG_OFFSET, 0))
}

// InTurn loads the numbers below n, one after another, of which the rule keeps count.
func InTurn(to Reg, n uint32) Expr {
	d := appendU32(nil, unix.NFTA_NG_DREG, uint32(to))
	d = appendU32(d, unix.NFTA_NG_MODULUS, n)
	d = appendU32(d, unix.NFTA_NG_TYPE, unix.NFT_NG_INCREMENTAL)
	return expr("numgen", appendU32(d, unix.NFTA_NG_OFFSET, 0))
}

// Hash makes a number below Mod of the Len bytes that begin at a register.
type Hash struct {
	From, To       Reg
	Len, Mod, Seed uint32
}

// Expr loads it.
func (h Hash) Expr() Expr {
	d := appendU32(nil, unix.NFTA_HASH_SREG, uint32(h.From))
	d = appendU32(d, unix.NFTA_HASH_DREG, uint32(h.To))
	d = appendU32(d, unix.NFTA_HASH_LEN, h.Len)
	d = appendU32(d, unix.NFTA_HASH_MODULUS, h.Mod)
	d = appendU32(d, unix.NFTA_HASH_SEED, h.Seed)
	return expr("hash", appendU32(d, unix.NFTA_HASH_TYPE, unix.NFT_HASH_JENKINS))
}

// Number loads a number as part of a key. It is a random one of one: a constant would
// do, but the nft program cannot list those there.
func Number(to Reg, n uint32) Expr {
	d := appendU32(nil, unix.NFTA_NG_DREG, uint32(to))
	d = appendU32(d, unix.NFTA_NG_MODULUS, 1)
	d = appendU32(d, unix.NFTA_NG_TYPE, unix.NFT_NG_RANDOM)
	return expr("numgen", appendU32(d, unix.NFTA_NG_OFFSET, n))
}

// DNAT sends the connection to the address and port in the registers.
func DNAT(f Family, addr, port Reg) Expr {
	d := appendU32(nil, unix.NFTA_NAT_TYPE, unix.NFT_NAT_DNAT)
	d = appendU32(d, unix.NFTA_NAT_FAMILY, uint32(f))
	d = appendU32(d, unix.NFTA_NAT_REG_ADDR_MIN, uint32(addr))
	return expr("nat", appendU32(d, unix.NFTA_NAT_REG_PROTO_MIN, uint32(port)))
}

// Masquerade gives the connection the address of the outgoing interface, and a
// source port chosen at random.
func Masquerade() Expr {
	const fullyRandom = 1 << 4 // NF_NAT_RANGE_PROTO_RANDOM_FULLY
	return expr("masq", appendU32(nil, unix.NFTA_MASQ_FLAGS, fullyRandom))
}

// RejectTCP answers with a TCP reset. Only for TCP packets.
func RejectTCP() Expr { return reject(unix.NFT_REJECT_TCP_RST, 0) }

// RejectPort answers with "port unreachable", in tables of the family.
func RejectPort(f Family) Expr {
	switch f {
	case IPv6:
		return reject(unix.NFT_REJECT_ICMP_UNREACH, 4)
	case IPv4:
		return reject(unix.NFT_REJECT_ICMP_UNREACH, 3)
	}
	return reject(unix.NFT_REJECT_ICMPX_UNREACH, unix.NFT_REJECT_ICMPX_PORT_UNREACH)
}

func reject(typ uint32, code uint8) Expr {
	d := appendU32(nil, unix.NFTA_REJECT_TYPE, typ)
	return expr("reject", appendAttr(d, unix.NFTA_REJECT_ICMP_CODE, []byte{code}))
}

// ConnStatus loads the status bits of the packet's connection.
func ConnStatus(to Reg) Expr { return ct(unix.NFT_CT_STATUS, to, false) }

// ConnState loads the state bit of the packet within its connection.
func ConnState(to Reg) Expr { return ct(unix.NFT_CT_STATE, to, false) }

// Bits of ConnStatus and ConnState, in the machine's byte order.
const (
	StatusDNAT       = 1 << 5
	StateInvalid     = 1 << 0
	StateEstablished = 1 << 1
	StateRelated     = 1 << 2
	StateNew         = 1 << 3
)

// HasBits holds if the register has one of the bits.
func HasBits(r Reg, bits uint32) []Expr {
	return []Expr{
		Mask(r, binary.NativeEndian.AppendUint32(nil, bits)),
		NotEqual(r, make([]byte, 4)),
	}
}

// OriginalDestination loads the address that the connection was made to.
func OriginalDestination(f Family, to Reg) Expr {
	if f == IPv6 {
		return ct(unix.NFT_CT_DST_IP6, to, true)
	}
	return ct(unix.NFT_CT_DST_IP, to, true)
}

// OriginalPort loads the port that the connection was made to.
func OriginalPort(to Reg) Expr { return ct(unix.NFT_CT_PROTO_DST, to, true) }

func ct(key uint32, to Reg, original bool) Expr {
	d := appendU32(nil, unix.NFTA_CT_KEY, key)
	d = appendU32(d, unix.NFTA_CT_DREG, uint32(to))
	if original {
		d = appendAttr(d, unix.NFTA_CT_DIRECTION, []byte{0})
	}
	return expr("ct", d)
}

// DestinationIsLocal holds if the destination is an address of this machine.
func DestinationIsLocal(scratch Reg) []Expr { return local(unix.NFTA_FIB_F_DADDR, scratch) }

// SourceIsLocal holds if the source is an address of this machine.
func SourceIsLocal(scratch Reg) []Expr { return local(unix.NFTA_FIB_F_SADDR, scratch) }

func local(flag uint32, r Reg) []Expr {
	d := appendU32(nil, unix.NFTA_FIB_FLAGS, flag)
	d = appendU32(d, unix.NFTA_FIB_RESULT, unix.NFT_FIB_RESULT_ADDRTYPE)
	fib := expr("fib", appendU32(d, unix.NFTA_FIB_DREG, uint32(r)))
	return []Expr{fib, Equal(r, binary.NativeEndian.AppendUint32(nil, unix.RTN_LOCAL))}
}

// Counter counts the packets that get this far.
func Counter() Expr {
	d := appendAttr(nil, unix.NFTA_COUNTER_BYTES, make([]byte, 8))
	return expr("counter", appendAttr(d, unix.NFTA_COUNTER_PACKETS, make([]byte, 8)))
}

// InInterface holds if the packet comes in by the named interface.
func InInterface(name string, scratch Reg) []Expr {
	return ifname(unix.NFT_META_IIFNAME, name, scratch)
}

// OutInterface holds if the packet goes out by the named interface.
func OutInterface(name string, scratch Reg) []Expr {
	return ifname(unix.NFT_META_OIFNAME, name, scratch)
}

// NotInInterface holds if the packet comes in by another interface.
func NotInInterface(name string, scratch Reg) []Expr {
	e := ifname(unix.NFT_META_IIFNAME, name, scratch)
	return []Expr{e[0], NotEqual(scratch, ifnameValue(name))}
}

// NotOutInterface holds if the packet goes out by another interface.
func NotOutInterface(name string, scratch Reg) []Expr {
	e := ifname(unix.NFT_META_OIFNAME, name, scratch)
	return []Expr{e[0], NotEqual(scratch, ifnameValue(name))}
}

// InPrefix holds if the address in the register is in the prefix. The register
// does not hold the address afterwards.
func InPrefix(r Reg, p netip.Prefix) []Expr {
	return append(masked(r, p), Equal(r, p.Masked().Addr().AsSlice()))
}

// NotInPrefix holds if the address in the register is not in the prefix. The
// register does not hold the address afterwards.
func NotInPrefix(r Reg, p netip.Prefix) []Expr {
	return append(masked(r, p), NotEqual(r, p.Masked().Addr().AsSlice()))
}

func masked(r Reg, p netip.Prefix) []Expr {
	if p.IsSingleIP() {
		return nil
	}
	mask := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []Expr{Mask(r, mask)}
}

func ifnameValue(name string) []byte {
	value := make([]byte, unix.IFNAMSIZ)
	copy(value, name)
	return value
}

func ifname(key uint32, name string, r Reg) []Expr {
	return []Expr{Meta(key, r), Equal(r, ifnameValue(name))}
}
