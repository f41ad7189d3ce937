package announce

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A wire is what a link's network says about addresses of one family. It is used by one goroutine,
// but for listen.
type wire struct {
	link   string
	index  int
	six    bool
	out    sender
	in     *os.File // the frames that pass the filter
	groups int      // socket that is in the groups of IPv6; -1: none
	addrs  []netip.Addr
}

// openWire opens the link that an address belongs to.
func openWire(addr netip.Addr) (*wire, error) {
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer nl.Close()
	link, err := Link(nl, addr)
	if err != nil {
		return nil, err
	}
	w := &wire{link: link.Attrs().Name, index: link.Attrs().Index, six: addr.Is6(), groups: -1}
	if w.out, err = newSender(link.Attrs()); err != nil {
		return nil, err
	}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("listen to link %s: %w", w.link, err), w.out.close())
	}
	return w, nil
}

func (w *wire) open() error {
	kind := uint16(typeARP)
	if w.six {
		kind = typeIPv6
	}
	protocol := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, kind)) // in the order of the network
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	w.in = os.NewFile(uintptr(fd), "frames of "+w.link)
	if err := w.filter(); err != nil { // before anything comes in
		return errors.Join(err, w.in.Close())
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: w.index}); err != nil {
		return errors.Join(os.NewSyscallError("bind", err), w.in.Close())
	}
	if !w.six {
		return nil
	}
	if w.groups, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		w.groups = -1
		return errors.Join(os.NewSyscallError("socket", err), w.in.Close())
	}
	return nil
}

// add has the wire heed an address too.
func (w *wire) add(addr netip.Addr) error {
	w.addrs = append(w.addrs, addr)
	return errors.Join(w.member(addr, unix.IPV6_JOIN_GROUP), w.filter())
}

// drop has it heed an address no more.
func (w *wire) drop(addr netip.Addr) error {
	for i, a := range w.addrs {
		if a == addr {
			w.addrs = append(w.addrs[:i], w.addrs[i+1:]...)
			break
		}
	}
	return errors.Join(w.member(addr, unix.IPV6_LEAVE_GROUP), w.filter())
}

// member joins or leaves the group of an address of IPv6, that network cards and switches pass on what is
// sent there. Another address may be of the same.
func (w *wire) member(addr netip.Addr, option int) error {
	if !w.six {
		return nil
	}
	g := group(addr)
	if option == unix.IPV6_LEAVE_GROUP {
		for _, a := range w.addrs {
			if group(a) == g {
				return nil
			}
		}
	}
	err := unix.SetsockoptIPv6Mreq(w.groups, unix.IPPROTO_IPV6, option, &unix.IPv6Mreq{Multiaddr: g.As16(), Interface: uint32(w.index)})
	if errors.Is(err, unix.EADDRINUSE) {
		err = nil
	}
	return os.NewSyscallError("setsockopt", err)
}

// mostFiltered is how many addresses the kernel looks for in a frame; with more, all are looked at here.
const mostFiltered = 100

// filter has the kernel hand over only frames about the wire's addresses.
func (w *wire) filter() error {
	raw, err := w.in.SyscallConn()
	if err != nil {
		return fmt.Errorf("filter frames: %w", err)
	}
	program := filterOf(w.addrs, w.six)
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	if err := errors.Join(err, os.NewSyscallError("setsockopt", failed)); err != nil {
		return fmt.Errorf("filter frames: %w", err)
	}
	return nil
}

// filterOf is a program of the packet filter that passes what is said about addresses: by ARP, of
// who sends and of who is asked for; by NDP, the last 32 bits of the target.
func filterOf(addrs []netip.Addr, six bool) []unix.SockFilter {
	load := func(width uint16, at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | width | unix.BPF_ABS, K: at}
	}
	var program []unix.SockFilter
	var equals []int // to pass from
	is := func(value uint32) {
		equals = append(equals, len(program))
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value})
	}
	refuse := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	if six {
		// Both checks go on to the next instruction, or to a refusal right behind them.
		program = append(program, load(unix.BPF_B, nextHeaderAt), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: icmpv6, Jt: 1}, refuse,
			load(unix.BPF_B, icmpAt), unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: solicitation, Jt: 2},
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: advertisement, Jt: 1}, refuse)
	}
	places := []uint32{targetAt, senderAt}
	if six {
		places = []uint32{icmpTargetAt + 12}
	}
	if len(addrs) <= mostFiltered {
		for _, at := range places {
			program = append(program, load(unix.BPF_W, at))
			for _, a := range addrs {
				b := a.AsSlice()
				is(binary.BigEndian.Uint32(b[len(b)-4:]))
			}
		}
		program = append(program, refuse)
	}
	pass := len(program)
	for _, i := range equals {
		program[i].Jt = uint8(pass - i - 1)
	}
	return append(program, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16})
}

// listen hands over what is heard until the wire is closed or ctx ends.
func (w *wire) listen(ctx context.Context, heard chan<- heard) error {
	b := make([]byte, 256)
	for {
		n, err := w.in.Read(b)
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		for _, m := range parse(b[:max(n, 0)]) {
			select {
			case heard <- heardOn(w, m):
			case <-ctx.Done():
				return nil
			}
		}
		if err != nil { // the link is down, or gone
			select {
			case heard <- brokenOn(w, err):
				return nil
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (w *wire) close() error {
	err := errors.Join(w.in.Close(), w.out.close())
	if w.groups >= 0 {
		err = errors.Join(err, unix.Close(w.groups))
	}
	return err
}
