package cluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/reach/virtual"
	"github.com/kemudi/kemudi/internal/task"
)

// virtualElection is how the servers agree who of them holds the virtual addresses: more
// quickly than who runs the controllers, as clients wait. It costs a write of a lease every half
// second, for those who want such addresses.
var virtualElection = leader.Settings{LeaseDuration: 2 * time.Second, RenewDeadline: 1500 * time.Millisecond, RetryPeriod: 500 * time.Millisecond}

// virtualLease is the name of their lease.
const virtualLease = "kemudi-virtual-ip"

// checkVirtual refuses addresses that cannot move between machines.
func checkVirtual(addrs []netip.Addr) error {
	for _, addr := range addrs {
		if !addr.IsGlobalUnicast() {
			return fmt.Errorf("--virtual-ip %s: others reach nothing there", addr)
		}
	}
	if len(addrs) > 2 || len(addrs) == 2 && addrs[0].Is4() == addrs[1].Is4() {
		return errors.New("--virtual-ip: want one address, or one of each family")
	}
	return nil
}

// texts are addresses as text.
func texts(addrs []netip.Addr) (list []string) {
	for _, addr := range addrs {
		list = append(list, addr.String())
	}
	return list
}

// holdVirtual holds the virtual addresses while this server is the one who does, until ctx ends.
func (s *server) holdVirtual(ctx context.Context) error {
	log := s.o.Logger.With("part", "virtual address")
	elector := leader.New(leader.Options{
		Settings: virtualElection, Name: virtualLease, Identity: s.o.NodeName + "_" + rand.Text(), Transport: s.plane.Admin(), Logger: log,
	})
	g := task.NewGroup(ctx)
	for _, addr := range s.o.VirtualIPs {
		held, err := virtual.Open(addr)
		if err != nil {
			g.Cancel(err)
			return errors.Join(err, g.Wait())
		}
		g.Go("hold address", func(ctx context.Context) error {
			err := elector.Lead(ctx, func(ctx context.Context) error {
				for ctx.Err() == nil {
					if err := held.Hold(ctx); err != nil {
						log.ErrorContext(ctx, "hold a virtual address: it is tried again", "address", addr.String(), "err", err)
						_ = task.Sleep(ctx, time.Second)
					}
				}
				return nil
			})
			return errors.Join(err, held.Close())
		})
	}
	g.Go("election", elector.Run)
	return g.Wait()
}
