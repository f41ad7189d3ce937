package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Groups hears what the kernel tells whoever has joined multicast groups of
// netlink, of nftables or any other subsystem.
type Groups struct {
	file *os.File
	name string
	buf  []byte
}

// Join joins groups, by their numbers, in the network namespace of the calling
// thread. protocol is the subsystem, such as unix.NETLINK_ROUTE; name is for errors.
func Join(protocol int, name string, groups ...uint) (*Groups, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return nil, fmt.Errorf("open netlink to watch %s: %w", name, err)
	}
	var mask uint32
	for _, g := range groups {
		mask |= 1 << (g - 1)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: mask}); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch %s: %w", name, err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	return &Groups{file: os.NewFile(uintptr(fd), name), name: name}, nil
}

// Close ends the membership, also one that Next waits for.
func (g *Groups) Close() { _ = g.file.Close() }

// Message is what the kernel said: typ is its kind, port the socket whose
// request led to it.
type Message struct {
	Type uint16
	Port uint32
	Body []byte // valid until the next call
}

// Next waits for a message that concerns the caller, or may have been lost
// because messages came faster than they could be read. What else has been said
// by then is dropped: one change, such as of all rules, takes many messages, and the
// caller looks at what there is now. It belongs to one goroutine at a time, and can be
// called again after any ctx has ended.
func (g *Groups) Next(ctx context.Context, concerns func(Message) bool) error {
	stop := context.AfterFunc(ctx, func() { _ = g.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	if g.buf == nil {
		g.buf = make([]byte, 64<<10)
	}
	for {
		n, err := g.file.Read(g.buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			// The deadline may have been set by the end of an earlier call's context. If
			// it was set by ours, ctx has ended by now. If ctx ends after the next line, it
			// sets the deadline again.
			_ = g.file.SetReadDeadline(time.Time{})
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			continue
		case errors.Is(err, unix.ENOBUFS):
			return g.drain()
		case err != nil:
			return fmt.Errorf("watch %s: %w", g.name, err)
		}
		hit := false
		err = eachMessage(g.buf[:n], func(h header, body []byte) error {
			hit = hit || concerns(Message{h.typ, h.pid, body})
			return nil
		})
		if err != nil {
			return err
		}
		if hit {
			return g.drain()
		}
	}
}

// drain reads what has been said already.
func (g *Groups) drain() error {
	raw, err := g.file.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			for {
				if _, err := unix.Read(int(fd), g.buf); err != nil && !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ENOBUFS) {
					return // nothing is left
				}
			}
		})
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w", g.name, err)
	}
	return nil
}
