package nft

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Watch tells of changes that others make to our tables.
type Watch struct {
	groups *Groups
	own    uint32 // the port of the socket whose changes are our own
}

// Watch opens a watch of the changes that are not made through c, in the
// network namespace of the calling thread.
func (c *Conn) Watch() (*Watch, error) {
	sa, err := unix.Getsockname(c.fd)
	if err != nil {
		return nil, fmt.Errorf("name netfilter socket: %w", err)
	}
	groups, err := Join(unix.NETLINK_NETFILTER, "nftables", unix.NFNLGRP_NFTABLES)
	if err != nil {
		return nil, err
	}
	return &Watch{groups, sa.(*unix.SockaddrNetlink).Pid}, nil
}

// Close ends the watch, also one that Next waits for.
func (w *Watch) Close() { w.groups.Close() }

// Next waits until somebody else has changed one of the tables: has added or deleted
// something, or the table as a whole, or may have (when changes came faster than they
// could be read). What rules add to sets is not told.
func (w *Watch) Next(ctx context.Context, tables ...Table) error {
	return w.groups.Next(ctx, func(m Message) bool { return w.concerns(m, tables) })
}

// NextHook waits until somebody else has made or changed a chain that the kernel
// calls, or may have.
func (w *Watch) NextHook(ctx context.Context) error {
	return w.groups.Next(ctx, func(m Message) bool {
		found := false
		if m.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWCHAIN && len(m.Body) >= 4 && m.Port != w.own {
			eachAttr(m.Body[4:], func(typ uint16, _ []byte) { found = found || typ == unix.NFTA_CHAIN_HOOK })
		}
		return found
	})
}

func (w *Watch) concerns(m Message, tables []Table) bool {
	if m.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Body) < 4 || m.Port == w.own {
		return false
	}
	switch m.Type & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM,
		unix.NFT_MSG_DELTABLE, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE, unix.NFT_MSG_DELSET, unix.NFT_MSG_DELSETELEM:
	default:
		return false
	}
	found := false
	eachAttr(m.Body[4:], func(typ uint16, v []byte) {
		// The table's name is attribute 1 of all of these messages.
		if typ == unix.NFTA_TABLE_NAME {
			found = slices.Contains(tables, Table{Family(m.Body[0]), cString(v)})
		}
	})
	return found
}
