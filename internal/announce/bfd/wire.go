package bfd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	port = 3784
	// Ports that packets are from (RFC 5881, 4).
	firstSource, sources = 49152, 16384
	// hops is what the packets of a neighbour have left: all.
	hops = 255
)

// Network is that of this process.
type Network struct{}

var _ Sockets = Network{}

// Listen opens the socket at which all packets of a family arrive.
func (Network) Listen(ctx context.Context, network string) (*net.UDPConn, error) {
	l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error {
			if network == "udp4" {
				return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVTTL, 1)
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPLIMIT, 1)
		})
	}}
	c, err := l.ListenPacket(ctx, network, fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

// receive waits for a packet of a neighbour.
func receive(c *net.UDPConn) (p packet, from netip.Addr, _ error) {
	body, extra := make([]byte, 128), make([]byte, 128)
	for {
		n, m, _, at, err := c.ReadMsgUDPAddrPort(body, extra)
		if err != nil {
			return p, from, err
		}
		if left(extra[:m]) != hops { // F1
			continue
		}
		if p, err = decode(body[:n]); err == nil {
			return p, at.Addr().Unmap(), nil
		}
	}
}

// left is how many hops a packet has left, by what the kernel tells beside it; -1: it does not.
func left(extra []byte) int {
	messages, err := unix.ParseSocketControlMessage(extra)
	if err != nil {
		return -1
	}
	for _, m := range messages {
		four := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_TTL
		six := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_HOPLIMIT
		if (four || six) && len(m.Data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(m.Data)))
		}
	}
	return -1
}

// Dial opens the socket that a session sends from.
func (Network) Dial(ctx context.Context, local, remote netip.Addr) (net.Conn, error) {
	d := net.Dialer{Control: func(network, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error {
			if remote.Is4() {
				return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, hops)
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, hops)
		})
	}}
	start := rand.IntN(sources)
	for i := range sources {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, uint16(firstSource+(start+i)%sources)))
		c, err := d.DialContext(ctx, "udp", netip.AddrPortFrom(remote, port).String())
		if err == nil || !errors.Is(err, unix.EADDRINUSE) {
			return c, err
		}
	}
	return nil, os.NewSyscallError("bind", unix.EADDRINUSE)
}

func control(c syscall.RawConn, set func(fd int) error) error {
	var failed error
	if err := c.Control(func(fd uintptr) { failed = os.NewSyscallError("setsockopt", set(int(fd))) }); err != nil {
		return err
	}
	return failed
}
