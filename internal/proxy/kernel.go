package proxy

import (
	"context"
	"fmt"

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
