package plane

import (
	"cmp"
	"context"
	"errors"
	"net/netip"

	"github.com/kemudi/kemudi/internal/task"
)

// Share says that other control planes work on the store as well, from its return on: the
// leases of controllers and scheduler are held by this process, which runs on with them as
// it did without, and reads of the newest state ask the store for it. Before that this process must be alone
// with the store. It waits until the API can be used, and may be called again. There is no way back but
// another start.
func (p *Plane) Share(ctx context.Context) error {
	if p.o.Shared {
		return nil
	}
	if err := await(ctx, p.ready); err != nil {
		return err
	}
	p.sharing.Do(func() {
		if err := p.record.Clear(ctx); err != nil {
			p.o.Logger.Warn("others may be taken for living servers", "err", err)
		}
		close(p.shared)
	})
	p.server.Share()
	if err := await(ctx, p.record.Kept()); err != nil {
		return err
	}
	for _, e := range p.lead.electors {
		if err := await(ctx, e.Held()); err != nil {
			return err
		}
	}
	return nil
}

// Shared is closed when other control planes may work on the store.
func (p *Plane) Shared() <-chan struct{} { return p.shared }

// Leave lets the others take over at once what this one does alone, while its API still answers. Who is
// alone goes on.
func (p *Plane) Leave() { p.leaving.Do(func() { close(p.left) }) }

// Move says that the API has another address.
func (p *Plane) Move(addr netip.AddrPort) { p.record.Move(addr) }

// among does what is to be done among others, as soon as there are some: it shows that this
// process lives, and takes part in the elections. It ends them first: who has no record does not
// lead any more.
func (p *Plane) among(ctx context.Context) error {
	if err := await(ctx, p.shared); err != nil {
		return nil
	}
	record, elections := task.NewGroup(context.WithoutCancel(ctx)), task.NewGroup(ctx)
	record.Go("record", p.record.Run)
	for _, e := range p.lead.electors {
		elections.Go("election", e.Run)
	}
	if err := await(ctx, p.left); err == nil {
		elections.Cancel(errLeft)
	}
	err := elections.Wait()
	record.Cancel(errLeft)
	return cmp.Or(err, record.Wait())
}

var errLeft = errors.New("this server leaves the others")

// await waits until something is done, or ctx ends.
func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
