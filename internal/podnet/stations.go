package podnet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/dump"
)

// The library knows no ports of forwarding lines. Their requests and answers are the
// kernel's struct ndmsg, and attributes behind it.

// station is a line of the forwarding table of a VXLAN device: to which node a hardware
// address leads.
type station struct {
	mac  mac
	node netip.Addr
	port uint16 // 0: the device's own
}

// neighbourMessage is a struct ndmsg for the forwarding table of a link.
type neighbourMessage struct {
	link  int
	state uint16
	flags uint8
}

const neighbourMessageLen = 12

func (*neighbourMessage) Len() int { return neighbourMessageLen }

// Serialize returns the message as the kernel has it.
func (m *neighbourMessage) Serialize() []byte {
	b := make([]byte, neighbourMessageLen)
	b[0] = unix.AF_BRIDGE
	binary.NativeEndian.PutUint32(b[4:], uint32(m.link))
	binary.NativeEndian.PutUint16(b[8:], m.state)
	b[10] = m.flags
	return b
}

// changeStation adds a line in the place of the one for its hardware address, or removes
// it: kind is RTM_NEWNEIGH or RTM_DELNEIGH.
func changeStation(link, kind int, s station) error {
	flags := unix.NLM_F_ACK
	if kind == unix.RTM_NEWNEIGH {
		flags |= unix.NLM_F_CREATE | unix.NLM_F_REPLACE
	}
	req := nl.NewNetlinkRequest(kind, flags)
	req.AddData(&neighbourMessage{link: link, state: unix.NUD_PERMANENT, flags: netlink.NTF_SELF})
	req.AddData(nl.NewRtAttr(unix.NDA_DST, s.node.AsSlice()))
	req.AddData(nl.NewRtAttr(unix.NDA_LLADDR, s.mac.hardware()))
	if s.port != 0 {
		req.AddData(nl.NewRtAttr(unix.NDA_PORT, binary.BigEndian.AppendUint16(nil, s.port)))
	}
	_, err := req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// stations lists the lines of a device that are for nodes' hardware addresses. Others are
// not ours.
func stations(link int) (list []station, _ error) {
	answers, err := dump.Whole("forwarding entries", func() ([][]byte, error) {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		req.AddData(&neighbourMessage{link: link})
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
	})
	if err != nil {
		return nil, err
	}
	for _, a := range answers {
		if len(a) < neighbourMessageLen || int(int32(binary.NativeEndian.Uint32(a[4:]))) != link {
			continue // the kernel tells of all links
		}
		attrs, err := nl.ParseRouteAttr(a[neighbourMessageLen:])
		if err != nil {
			return nil, fmt.Errorf("read the kernel's answer: %w", err)
		}
		if s, ok := readStation(attrs); ok {
			list = append(list, s)
		}
	}
	return list, nil
}

func readStation(attrs []syscall.NetlinkRouteAttr) (s station, ok bool) {
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.NDA_DST:
			node, _ := netip.AddrFromSlice(a.Value)
			s.node = node.Unmap()
		case unix.NDA_LLADDR:
			s.mac, ok = ours(a.Value)
		case unix.NDA_PORT:
			if len(a.Value) == 2 {
				s.port = binary.BigEndian.Uint16(a.Value)
			}
		}
	}
	return s, ok && s.node.IsValid()
}
