package nft

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Conn is a netlink socket in one network namespace: that of the thread which
// called Open. It may be used from any thread, by one goroutine at a time.
type Conn struct {
	fd     int
	sndbuf int
	buf    []byte // for answers
}

// Open opens a socket in the calling thread's network namespace.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	c := &Conn{fd: fd, buf: make([]byte, 64<<10)}
	if err := c.setup(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Conn) setup() error {
	if err := unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netfilter socket: %w", err)
	}
	// Answers without a copy of what was sent, and with a reason in words. Old
	// kernels know neither; nothing depends on them.
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	c.buffer(unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, 8<<20)
	return nil
}

// buffer sets a buffer's size, beyond the system's limit if we may.
func (c *Conn) buffer(force, plain, size int) {
	if unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, force, size) != nil {
		_ = unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, plain, size)
	}
}

// Close closes the socket; it may be called more than once.
func (c *Conn) Close() {
	if c.fd >= 0 {
		_ = unix.Close(c.fd)
	}
	c.fd = -1
}

// Commit has the kernel take the whole batch, or nothing of it. The batch must
// not be changed afterwards. The kernel works while the call lasts and cannot be
// interrupted; ctx is looked at before.
func (c *Conn) Commit(ctx context.Context, b *Batch) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if b.err != nil {
		return fmt.Errorf("encode nftables transaction: %w", b.err)
	}
	if len(b.msgs) == 0 {
		return nil
	}
	last := b.msgs[len(b.msgs)-1].at
	flags := binary.NativeEndian.Uint16(b.buf[last+6:])
	binary.NativeEndian.PutUint16(b.buf[last+6:], flags|unix.NLM_F_ACK)

	begin, end := frame(unix.NFNL_MSG_BATCH_BEGIN), frame(unix.NFNL_MSG_BATCH_END)
	size := len(begin) + len(b.buf) + len(end)
	if size > c.sndbuf {
		c.sndbuf = 2 * size
		c.buffer(unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, c.sndbuf)
	}
	c.drain()
	_, err := unix.SendmsgBuffers(c.fd, [][]byte{begin, b.buf, end}, nil, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0)
	if err != nil {
		return fmt.Errorf("send nftables transaction of %d bytes: %w", size, err)
	}
	return c.result(b)
}

func frame(typ uint16) []byte {
	m := appendHeader(nil, typ, unix.NLM_F_REQUEST, 0)
	return append(m, unix.AF_UNSPEC, unix.NFNETLINK_V0, unix.NFNL_SUBSYS_NFTABLES>>8, unix.NFNL_SUBSYS_NFTABLES)
}

// drain throws away answers that an earlier, failed call has left unread.
func (c *Conn) drain() {
	for {
		if _, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return
		}
	}
}

// TxError says why the kernel refused a transaction.
type TxError struct {
	Errno unix.Errno
	// Op is the operation that failed, such as "add chain x"; empty if the
	// rules as a whole were refused.
	Op string
	// Reason is the kernel's own explanation; often empty.
	Reason string
}

func (e *TxError) Error() string {
	s := e.Op
	if s == "" {
		s = "commit"
	}
	s += ": " + e.Errno.Error()
	if e.Reason != "" {
		s += " (" + e.Reason + ")"
	}
	return s
}

func (e *TxError) Unwrap() error { return e.Errno }

// result reads the kernel's answers: an error for each message that failed, and an
// acknowledgement of the last message. All are queued by the time the send returns.
func (c *Conn) result(b *Batch) error {
	var failed []error
	acked := false
	for {
		n, _, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			if len(failed) == 0 && !acked {
				return errors.New("commit nftables transaction: no answer")
			}
			if len(failed) > 0 {
				return fmt.Errorf("commit nftables transaction: %w", errors.Join(failed...))
			}
			return nil
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			failed = append(failed, err) // there were more errors than fit
			continue
		case err != nil:
			return fmt.Errorf("read answer to nftables transaction: %w", err)
		}
		err = eachMessage(c.buf[:n], func(h header, body []byte) error {
			if h.typ != unix.NLMSG_ERROR || len(body) < 4+unix.NLMSG_HDRLEN {
				return nil
			}
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			if errno == 0 {
				acked = true
			} else if len(failed) < 5 {
				failed = append(failed, b.failure(errno, h, body))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
}

func (b *Batch) failure(errno unix.Errno, h header, body []byte) error {
	e := &TxError{Errno: errno}
	if h.seq > 0 && int(h.seq) <= len(b.msgs) {
		m := b.msgs[h.seq-1]
		e.Op = m.what + " " + m.name
	}
	if h.flags&unix.NLM_F_ACK_TLVS != 0 && h.flags&unix.NLM_F_CAPPED != 0 {
		eachAttr(body[4+unix.NLMSG_HDRLEN:], func(typ uint16, v []byte) {
			if typ == unix.NLMSGERR_ATTR_MSG {
				e.Reason = cString(v)
			}
		})
	}
	return e
}

type header struct {
	typ, flags uint16
	seq, pid   uint32
}

func eachMessage(buf []byte, fn func(h header, body []byte) error) error {
	for len(buf) >= unix.NLMSG_HDRLEN {
		n := int(binary.NativeEndian.Uint32(buf))
		if n < unix.NLMSG_HDRLEN || n > len(buf) {
			return fmt.Errorf("netlink message of length %d in %d bytes", n, len(buf))
		}
		h := header{
			typ:   binary.NativeEndian.Uint16(buf[4:]),
			flags: binary.NativeEndian.Uint16(buf[6:]),
			seq:   binary.NativeEndian.Uint32(buf[8:]),
			pid:   binary.NativeEndian.Uint32(buf[12:]),
		}
		if err := fn(h, buf[unix.NLMSG_HDRLEN:n]); err != nil {
			return err
		}
		buf = buf[min((n+3)&^3, len(buf)):]
	}
	return nil
}

func eachAttr(buf []byte, fn func(typ uint16, v []byte)) {
	for len(buf) >= unix.SizeofNlAttr {
		n := int(binary.NativeEndian.Uint16(buf))
		if n < unix.SizeofNlAttr || n > len(buf) {
			return
		}
		fn(binary.NativeEndian.Uint16(buf[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), buf[unix.SizeofNlAttr:n])
		buf = buf[min((n+3)&^3, len(buf)):]
	}
}

func cString(v []byte) string {
	if i := slices.Index(v, 0); i >= 0 {
		v = v[:i]
	}
	return string(v)
}
