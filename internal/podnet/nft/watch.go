package nft

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Watch tells of changes that others make to our tables.
type Watch struct {
	file *os.File
	own  uint32 // the port of the socket whose changes are our own
}

// Watch opens a watch of the changes that are not made through c, in the
// network namespace of the calling thread.
func (c *Conn) Watch() (*Watch, error) {
	sa, err := unix.Getsockname(c.fd)
	if err != nil {
		return nil, fmt.Errorf("name netfilter socket: %w", err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	group := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)}
	if err := unix.Bind(fd, group); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("watch nftables: %w", err)
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20)
	return &Watch{file: os.NewFile(uintptr(fd), "nftables"), own: sa.(*unix.SockaddrNetlink).Pid}, nil
}

// Close ends the watch, also one that Next waits for.
func (w *Watch) Close() { _ = w.file.Close() }

// Next waits until somebody else has deleted something in one of the tables, or
// one of them as a whole, or may have (when changes came faster than they could
// be read).
func (w *Watch) Next(ctx context.Context, tables ...Table) error {
	return w.next(ctx, func(h header, body []byte) bool { return w.concerns(h, body, tables) })
}

// NextHook waits until somebody else has made or changed a chain that the kernel
// calls, or may have.
func (w *Watch) NextHook(ctx context.Context) error {
	return w.next(ctx, func(h header, body []byte) bool {
		found := false
		if h.typ == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWCHAIN && len(body) >= 4 && h.pid != w.own {
			eachAttr(body[4:], func(typ uint16, _ []byte) { found = found || typ == unix.NFTA_CHAIN_HOOK })
		}
		return found
	})
}

func (w *Watch) next(ctx context.Context, concerns func(h header, body []byte) bool) error {
	stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	buf := make([]byte, 256<<10)
	for {
		n, err := w.file.Read(buf)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, os.ErrDeadlineExceeded):
			_ = w.file.SetReadDeadline(time.Time{}) // it was that of an earlier call
			continue
		case errors.Is(err, unix.ENOBUFS):
			return nil
		case err != nil:
			return fmt.Errorf("watch nftables: %w", err)
		}
		hit := false
		err = eachMessage(buf[:n], func(h header, body []byte) error {
			hit = hit || concerns(h, body)
			return nil
		})
		if err != nil {
			return err
		}
		if hit {
			return nil
		}
	}
}

func (w *Watch) concerns(h header, body []byte, tables []Table) bool {
	if h.typ>>8 != unix.NFNL_SUBSYS_NFTABLES || len(body) < 4 || h.pid == w.own {
		return false
	}
	switch h.typ & 0xff {
	case unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
	default:
		return false
	}
	found := false
	eachAttr(body[4:], func(typ uint16, v []byte) {
		// The table's name is attribute 1 of all of these messages.
		if typ == unix.NFTA_TABLE_NAME {
			found = slices.Contains(tables, Table{Family(body[0]), cString(v)})
		}
	})
	return found
}
