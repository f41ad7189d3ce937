package announce

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
)

// hardware is an address of Ethernet.
type hardware [6]byte

func (h hardware) String() string { return net.HardwareAddr(h[:]).String() }

var broadcast = hardware{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// A message is what is said of an address: who sends it has it, or asks who has.
type message struct {
	tells bool
	addr  netip.Addr
	from  hardware
	to    hardware
	asker netip.Addr // of an ask, and of its answer: from where it came; invalid: nobody says
	mark  mark       // of this cluster's machines; zero: of another machine
}

// A mark tells the machines of a cluster from others, and what they go by.
type mark struct {
	cluster cluster
	number  uint32 // of the list that names the machine
	rank    uint8  // in it; leaving: it is about to let go
	node    node
}

// leaving is the rank of who lets go.
const leaving = 255

// cluster and node are short for names.
type (
	cluster [6]byte
	node    [5]byte
)

func clusterOf(name string) cluster {
	sum := sha256.Sum256([]byte(name))
	return cluster(sum[:6])
}

func nodeOf(name string) node {
	sum := sha256.Sum256([]byte(name))
	return node(sum[:5])
}

// magic begins a mark.
var magic = [2]byte{'k', 'm'}

// markLen is as long as Ethernet pads ARP.
const markLen = 18

func (m mark) append(b []byte) []byte {
	b = append(append(b, magic[:]...), m.cluster[:]...)
	b = append(binary.BigEndian.AppendUint32(b, m.number), m.rank)
	return append(b, m.node[:]...)
}

func parseMark(b []byte) (m mark) {
	if len(b) < markLen || !bytes.HasPrefix(b, magic[:]) {
		return m
	}
	return mark{cluster(b[2:8]), binary.BigEndian.Uint32(b[8:12]), b[12], node(b[13:18])}
}

// Numbers of RFC 826 and RFC 4861, and where things are in a frame.
const (
	typeARP  = 0x0806
	typeIPv6 = 0x86dd

	arpRequest = 1
	arpReply   = 2
	arpAt      = 14
	senderAt   = arpAt + 14
	targetAt   = arpAt + 24
	arpEnd     = arpAt + 28

	solicitation     = 135
	advertisement    = 136
	solicited        = 1 << 30
	overrides        = 1 << 29
	ownAddress       = 2   // option: the hardware address of the target
	experiment       = 253 // option: RFC 4727
	hopLimit         = 255
	icmpv6           = 58
	nextHeaderAt     = 14 + 6
	hopLimitAt       = 14 + 7
	icmpAt           = 14 + 40
	icmpTargetAt     = icmpAt + 8
	neighbourOptions = icmpAt + 24
)

// frames are a message as it is sent. What is told to everybody goes in both forms of ARP: some
// heed one, some the other.
func (m *message) frames() [][]byte {
	if m.addr.Is6() {
		return [][]byte{m.ndp()}
	}
	if m.tells && m.to == broadcast {
		return [][]byte{m.arp(arpRequest), m.arp(arpReply)}
	}
	if m.tells {
		return [][]byte{m.arp(arpReply)}
	}
	return [][]byte{m.arp(arpRequest)}
}

func (m *message) arp(operation uint16) []byte {
	b := ethernet(m.to, m.from, typeARP)
	b = append(b, 0, 1, 8, 0, 6, 4) // Ethernet, IPv4
	b = binary.BigEndian.AppendUint16(b, operation)
	b = append(b, m.from[:]...)
	none := netip.IPv4Unspecified()
	switch {
	case !m.tells: // a probe: nobody learns from it
		b = append(append(b, none.AsSlice()...), make([]byte, 6)...)
		b = append(b, m.addr.AsSlice()...)
	case m.asker.IsValid() && m.to != broadcast:
		b = append(append(b, m.addr.AsSlice()...), m.to[:]...)
		b = append(b, m.asker.AsSlice()...)
	default:
		b = append(append(b, m.addr.AsSlice()...), m.from[:]...)
		b = append(b, m.addr.AsSlice()...)
	}
	if m.mark != (mark{}) {
		return m.mark.append(b)
	}
	return append(b, make([]byte, markLen)...)
}

func ethernet(to, from hardware, kind uint16) []byte {
	b := append(append(make([]byte, 0, 128), to[:]...), from[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

var (
	allNodes       = netip.MustParseAddr("ff02::1")
	solicitedNodes = netip.MustParseAddr("ff02::1:ff00:0")
)

// group is the multicast group of those who may have an address.
func group(addr netip.Addr) netip.Addr {
	g, a := solicitedNodes.As16(), addr.As16()
	copy(g[13:], a[13:])
	return netip.AddrFrom16(g)
}

// groupHardware is where a group of IPv6 is on Ethernet.
func groupHardware(g netip.Addr) hardware {
	a := g.As16()
	return hardware{0x33, 0x33, a[12], a[13], a[14], a[15]}
}

func (m *message) ndp() []byte {
	from, to, hw := netip.IPv6Unspecified(), group(m.addr), m.to
	kind, flags := byte(solicitation), uint32(0)
	if m.tells {
		from, to, kind, flags = m.addr, allNodes, advertisement, overrides
		if m.asker.IsValid() && !m.asker.IsUnspecified() && m.to != broadcast {
			to, flags = m.asker, overrides|solicited
		}
	}
	if m.to == broadcast {
		hw = groupHardware(to)
	}
	body := []byte{kind, 0, 0, 0}
	body = binary.BigEndian.AppendUint32(body, flags)
	body = append(body, m.addr.AsSlice()...)
	if m.tells {
		body = append(append(body, ownAddress, 1), m.from[:]...)
	}
	if m.mark != (mark{}) {
		body = m.mark.append(append(body, experiment, 3))
		body = append(body, 0, 0, 0, 0)
	}
	binary.BigEndian.PutUint16(body[2:], checksum(from, to, body))
	b := ethernet(hw, m.from, typeIPv6)
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, icmpv6, hopLimit)
	b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	return append(b, body...)
}

// checksum is that of ICMPv6 over the pseudo-header of RFC 8200.
func checksum(from, to netip.Addr, body []byte) uint16 {
	sum := uint32(len(body)) + icmpv6
	for _, part := range [][]byte{from.AsSlice(), to.AsSlice(), body} {
		for ; len(part) > 1; part = part[2:] {
			sum += uint32(part[0])<<8 | uint32(part[1])
		}
		if len(part) == 1 {
			sum += uint32(part[0]) << 8
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// parse is what a frame says: of one address, or, of an ask by ARP, also of that of who asks.
func parse(b []byte) []message {
	if len(b) < arpAt {
		return nil
	}
	m := message{to: hardware(b[0:6]), from: hardware(b[6:12])}
	switch binary.BigEndian.Uint16(b[12:]) {
	case typeARP:
		return m.parseARP(b)
	case typeIPv6:
		return m.parseNDP(b)
	}
	return nil
}

func (m message) parseARP(b []byte) []message {
	if len(b) < arpEnd || !bytes.Equal(b[arpAt:arpAt+6], []byte{0, 1, 8, 0, 6, 4}) {
		return nil
	}
	sender, target := netip.AddrFrom4([4]byte(b[senderAt:])), netip.AddrFrom4([4]byte(b[targetAt:]))
	m.from = hardware(b[arpAt+8:])
	m.mark = parseMark(b[arpEnd:])
	has := m
	has.tells, has.addr = true, sender
	switch operation := binary.BigEndian.Uint16(b[arpAt+6:]); {
	case operation == arpReply, operation == arpRequest && sender == target:
		return []message{has}
	case operation != arpRequest:
		return nil
	}
	m.addr, m.asker = target, sender
	if sender.IsUnspecified() {
		return []message{m}
	}
	return []message{m, has}
}

func (m message) parseNDP(b []byte) []message {
	if len(b) < neighbourOptions || b[nextHeaderAt] != icmpv6 || b[hopLimitAt] != hopLimit {
		return nil
	}
	m.addr = netip.AddrFrom16([16]byte(b[icmpTargetAt:]))
	switch b[icmpAt] {
	case solicitation:
		m.asker = netip.AddrFrom16([16]byte(b[14+8:]))
	case advertisement:
		m.tells = true
	default:
		return nil
	}
	for rest := b[neighbourOptions:]; len(rest) >= 8; {
		n := int(rest[1]) * 8
		if n == 0 || n > len(rest) {
			return nil // RFC 4861: such are dropped
		}
		switch rest[0] {
		case ownAddress:
			if m.tells {
				m.from = hardware(rest[2:8])
			}
		case experiment:
			m.mark = parseMark(rest[2:n])
		}
		rest = rest[n:]
	}
	return []message{m}
}
