package parts

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/leader"
	"github.com/kemudi/kemudi/internal/resource"
)

// ballot is the API with a cache of one lease that is looked at every so often: a part may
// get and update its own lease by upstream's roles, but neither list nor watch any. What
// this process writes is seen at once.
type ballot struct {
	client.Transport
	namespace, name string
	period, within  time.Duration // how often it is looked at, and how long a look may take
	lease           *cache.Cache
	wrote           chan *coordinationv1.Lease // buffered: the newest is enough
	log             *slog.Logger
}

var _ client.Transport = (*ballot)(nil)

func newBallot(t client.Transport, s leader.Settings, log *slog.Logger) *ballot {
	return &ballot{
		Transport: t, namespace: s.Namespace, name: s.Lease(0), period: s.RetryPeriod, within: s.RenewDeadline, log: log,
		lease: cache.New(coordination.Leases.Def, &cache.Progress{}), wrote: make(chan *coordinationv1.Lease, 1),
	}
}

// Cache returns the cache of the lease in place of that of all leases.
func (b *ballot) Cache(def *resource.Def, scope string) *cache.Cache {
	if def == coordination.Leases.Def {
		return b.lease
	}
	return b.Transport.Cache(def, scope)
}

// Do performs one request, and notes how it has left the lease.
func (b *ballot) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	obj, err := b.Transport.Do(ctx, r)
	if l, ok := obj.(*coordinationv1.Lease); ok && err == nil {
		select {
		case <-b.wrote: // an older one
		default:
		}
		select {
		case b.wrote <- l:
		default: // another call was faster: the next look sees it
		}
	}
	return obj, err
}

// run looks at the lease until ctx ends.
func (b *ballot) run(ctx context.Context) error {
	look := time.NewTicker(b.period)
	defer look.Stop()
	for failed := false; ; {
		err := b.look(ctx)
		if err != nil && !failed && ctx.Err() == nil { // the first of a row
			b.log.Warn("look at the lease", "lease", b.name, "err", err)
		}
		failed = err != nil
		for written := true; written; {
			select {
			case l := <-b.wrote:
				b.show(l)
			case <-look.C:
				written = false
			case <-ctx.Done():
				return nil
			}
		}
	}
}

func (b *ballot) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.within)
	defer cancel()
	l, err := client.For(b.Transport, coordination.Leases).Get(ctx, b.namespace, b.name)
	switch {
	case err == nil:
		b.show(l)
	case !apierrors.IsNotFound(err):
		return err
	case b.lease.Len() > 0: // it was deleted, by a write of its own
		b.replace(nil, b.lease.Rev()+1)
	default:
		b.replace(nil, b.lease.Rev())
	}
	return nil
}

// show puts a state of the lease into the cache, unless it is older than what is there.
func (b *ballot) show(l *coordinationv1.Lease) {
	rev, err := strconv.ParseInt(l.ResourceVersion, 10, 64)
	if err != nil || rev <= b.lease.Rev() {
		return
	}
	b.replace([]*cache.Item{{Key: cache.Key(l.Namespace, l.Name), Object: l, Rev: rev}}, rev)
}

func (b *ballot) replace(items []*cache.Item, rev int64) {
	b.lease.Replace(items, rev)
	b.lease.Progress.Advance(rev)
}
