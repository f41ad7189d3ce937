package nft

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// Flow is a connection that the kernel tracks.
type Flow struct {
	Family  Family
	Proto   uint8
	From    netip.AddrPort // who made it
	To      netip.AddrPort // where it was made to, before any translation
	Answers netip.AddrPort // who answers: where it goes
	State   uint8          // of TCP, as the kernel numbers them; 0: it has none
	tuple   []byte         // how the kernel names it
	zone    []byte
}

// tcpEstablished is the last of the states in which both ends may go on to speak.
const tcpEstablished = 3

// Open says that neither end has said that it is the end.
func (f *Flow) Open() bool { return f.State <= tcpEstablished }

// FlowFilter says which flows are wanted. The kernel looks through all of them, and
// tells of no others; one that cannot (before 5.8) tells of all, and the rest is
// dropped here.
type FlowFilter struct {
	Family Family
	Proto  uint8
	To     netip.Addr // not valid: any
	Port   uint16     // of To; 0: any
}

// Numbers of connection tracking (linux/netfilter/nfnetlink_conntrack.h).
const (
	ctGet, ctDelete         = 1, 2
	ctTupleOrig             = 1
	ctTupleReply            = 2
	ctProtoInfo             = 4
	ctInfoTCP, ctTCPState   = 1, 1
	ctZone                  = 18
	ctFilter                = 25
	ctTupleIP, ctTupleProto = 1, 2
	ctFilterOrigFlags       = 1
	ctFlagDst, ctFlagProto  = 1 << 1, 1 << 3
	ctFlagDstPort           = 1 << 5
	ctProtoNum              = 1
	ctProtoSrc, ctProtoDst  = 2, 3
)

// Flows lists flows.
func (c *Conn) Flows(f FlowFilter) ([]Flow, error) {
	var found []Flow
	err := c.dumpOf(unix.NFNL_SUBSYS_CTNETLINK<<8|ctGet, f.Family, f.attrs(), func(family Family, attrs map[uint16][]byte) {
		flow := Flow{Family: family}
		var answer netip.AddrPort
		flow.From, flow.To, flow.Proto = readTuple(attrs[ctTupleOrig])
		flow.Answers, answer, _ = readTuple(attrs[ctTupleReply])
		if !flow.To.IsValid() || !answer.IsValid() || !f.matches(&flow) {
			return
		}
		eachAttr(attrs[ctProtoInfo], func(typ uint16, v []byte) {
			if typ != ctInfoTCP {
				return
			}
			eachAttr(v, func(typ uint16, v []byte) {
				if typ == ctTCPState && len(v) == 1 {
					flow.State = v[0]
				}
			})
		})
		flow.tuple = append([]byte(nil), attrs[ctTupleOrig]...)
		flow.zone = append([]byte(nil), attrs[ctZone]...)
		found = append(found, flow)
	})
	if err != nil {
		return nil, fmt.Errorf("list tracked connections: %w", err)
	}
	return found, nil
}

func (f *FlowFilter) matches(flow *Flow) bool {
	return flow.Proto == f.Proto && (!f.To.IsValid() || flow.To.Addr() == f.To) && (f.Port == 0 || flow.To.Port() == f.Port)
}

// attrs is the filter as the kernel takes it.
func (f *FlowFilter) attrs() []byte {
	flags := uint32(ctFlagProto)
	var tuple []byte
	if f.To.IsValid() {
		flags |= ctFlagDst
		const v4, v6 = 2, 4 // CTA_IP_V4_DST, CTA_IP_V6_DST
		typ := uint16(v4)
		if f.To.Is6() {
			typ = v6
		}
		tuple = appendAttr(tuple, unix.NLA_F_NESTED|ctTupleIP, appendAttr(nil, typ, f.To.AsSlice()))
	}
	proto := appendAttr(nil, ctProtoNum, []byte{f.Proto})
	if f.Port != 0 {
		flags |= ctFlagDstPort
		proto = appendAttr(proto, ctProtoDst, binary.BigEndian.AppendUint16(nil, f.Port))
	}
	tuple = appendAttr(tuple, unix.NLA_F_NESTED|ctTupleProto, proto)
	filter := appendAttr(nil, ctFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, flags))
	return appendAttr(appendAttr(nil, unix.NLA_F_NESTED|ctTupleOrig, tuple), unix.NLA_F_NESTED|ctFilter, filter)
}

// readTuple takes one direction of a connection apart.
func readTuple(buf []byte) (src, dst netip.AddrPort, proto uint8) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	eachAttr(buf, func(typ uint16, v []byte) {
		switch typ {
		case ctTupleIP:
			eachAttr(v, func(typ uint16, v []byte) { // odd: source
				if a, ok := netip.AddrFromSlice(v); ok && typ%2 == 1 {
					from = a
				} else if ok {
					to = a
				}
			})
		case ctTupleProto:
			eachAttr(v, func(typ uint16, v []byte) {
				switch {
				case typ == ctProtoNum && len(v) == 1:
					proto = v[0]
				case typ == ctProtoSrc && len(v) == 2:
					fromPort = binary.BigEndian.Uint16(v)
				case typ == ctProtoDst && len(v) == 2:
					toPort = binary.BigEndian.Uint16(v)
				}
			})
		}
	})
	return netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), proto
}

// EndFlow makes the kernel forget a flow; it is no error if it has ended by itself.
func (c *Conn) EndFlow(f *Flow) error {
	c.drain()
	req := appendHeader(nil, unix.NFNL_SUBSYS_CTNETLINK<<8|ctDelete, unix.NLM_F_REQUEST|unix.NLM_F_ACK, 1)
	req = append(req, uint8(f.Family), unix.NFNETLINK_V0, 0, 0)
	req = appendAttr(req, unix.NLA_F_NESTED|ctTupleOrig, f.tuple)
	if len(f.zone) > 0 {
		req = appendAttr(req, ctZone, f.zone)
	}
	binary.NativeEndian.PutUint32(req, uint32(len(req)))
	if err := unix.Sendto(c.fd, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("end tracked connection to %s: %w", f.To, err)
	}
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return os.NewSyscallError("recvfrom", err)
		}
		if _, err = dumped(c.buf[:n], func(Family, map[uint16][]byte) {}); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.Errno(0)) {
			return fmt.Errorf("end tracked connection to %s: %w", f.To, err)
		}
		return nil
	}
}
