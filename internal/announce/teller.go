package announce

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Teller tells a link's network that an address is at the link.
type Teller struct {
	out  sender
	said message
}

// NewTeller opens a Teller.
func NewTeller(addr netip.Addr, link *netlink.LinkAttrs) (Teller, error) {
	out, err := newSender(link)
	return Teller{out, message{tells: true, addr: addr, from: out.own, to: broadcast}}, err
}

// Tell tells everybody once.
func (t *Teller) Tell() error { return t.out.send(&t.said) }

// Close closes the socket.
func (t *Teller) Close() error { return t.out.close() }

// sender sends frames by a link. It receives nothing.
type sender struct {
	fd    int
	index int
	own   hardware
}

func newSender(link *netlink.LinkAttrs) (sender, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return sender{}, fmt.Errorf("open a socket for ARP and NDP: %w", os.NewSyscallError("socket", err))
	}
	return sender{fd, link.Index, hardware(link.HardwareAddr)}, nil
}

func (s *sender) send(m *message) error {
	to := &unix.SockaddrLinklayer{Ifindex: s.index, Halen: uint8(len(s.own))}
	copy(to.Addr[:], m.to[:])
	for _, frame := range m.frames() {
		if err := unix.Sendto(s.fd, frame, 0, to); err != nil {
			return os.NewSyscallError("sendto", err)
		}
	}
	return nil
}

func (s *sender) close() error { return unix.Close(s.fd) }
