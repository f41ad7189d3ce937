package proxy

import (
	"context"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
)

// kernel brings what the model asks for to the kernel of one network namespace.
// It belongs to one goroutine.
type kernel struct {
	*table.Kernel
	flows *nft.Conn       // tracked connections
	nl    *netlink.Handle // addresses
}

// openKernel works on the network namespace of the calling thread.
func openKernel() (*kernel, error) {
	rules, err := table.Open()
	if err != nil {
		return nil, err
	}
	flows, err := nft.Open()
	if err != nil {
		rules.Close()
		return nil, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		rules.Close()
		flows.Close()
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &kernel{rules, flows, nl}, nil
}

// mostAtOnce is how many elements are made in one transaction where there has been no table: for each of them
// the kernel makes a message of a page for those who watch tables, and keeps it until the end.
const mostAtOnce = 4096

// Apply is that of [table.Kernel]. A large table that is new comes in parts: the chains that the kernel calls, without
// which no packet sees it, are in the last one.
func (k *kernel) Apply(ctx context.Context, tables ...table.Changes) error {
	tables = slices.Clone(tables)
	var later [][]table.Changes
	for i := range tables {
		c := &tables[i]
		if !c.Full || len(c.Add) <= mostAtOnce {
			continue
		}
		exists, err := k.Conn().Has(c.Table)
		if err != nil {
			return err
		}
		if !exists {
			later = append(later, parts(c))
		}
	}
	if err := k.Kernel.Apply(ctx, tables...); err != nil {
		return err
	}
	for _, part := range slices.Concat(later...) {
		if err := k.Kernel.Apply(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// parts leaves of a table that is new what its other parts need, and returns these.
func parts(c *table.Changes) (list []table.Changes) {
	for part := range slices.Chunk(c.Add, mostAtOnce) {
		list = append(list, table.Changes{Table: c.Table, Add: part})
	}
	last := table.Changes{Table: c.Table}
	var first []table.Chain
	for _, ch := range c.Chains {
		if ch.Hook != nil {
			last.Chains = append(last.Chains, ch)
		} else {
			first = append(first, ch)
		}
	}
	c.Chains, c.Add = first, nil
	return append(list, last)
}

// close may be called more than once.
func (k *kernel) close() {
	k.Close()
	k.flows.Close()
	if k.nl != nil {
		k.nl.Close()
	}
	k.nl = nil
}

// Reset removes the tables from the network namespace of the calling thread.
// It returns what it removed, for people. Nothing else is on the host from this package.
func Reset(ctx context.Context) (removed []string, err error) {
	k, err := table.Open()
	if err != nil {
		return nil, err
	}
	defer k.Close()
	return k.Remove(ctx, tableOf(nft.IPv4), tableOf(nft.IPv6))
}
