package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/fence"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Options say what an elector stands for. All but Events and Metrics are required.
type Options struct {
	Settings Settings
	Name     string // of the lease
	Identity string // of this process: no other may ever have it
	// Transport may read and write the lease, past what the process may do as a leader.
	Transport client.Transport
	Events    client.EventSink // nil: no events are written
	Metrics   *Metrics         // nil: none
	Logger    *slog.Logger
}

// Elector takes part in one election while Run runs.
type Elector struct {
	o      Options
	log    *slog.Logger
	leases client.Client[*coordinationv1.Lease]
	seen   client.Reader[*coordinationv1.Lease]

	mu struct {
		sync.Mutex
		term  *term         // nil: another process leads, or none
		begun chan struct{} // closed when there is a new term
	}
}

// New returns an elector that leads nothing yet.
func New(o Options) *Elector {
	o.Settings = o.Settings.WithDefaults()
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	e := &Elector{
		o: o, log: o.Logger.With("lease", o.Name, "identity", o.Identity),
		leases: client.For(o.Transport, coordination.Leases), seen: client.Cached(o.Transport, coordination.Leases, ""),
	}
	e.mu.begun = make(chan struct{})
	o.Metrics.set(o.Name, 0)
	return e
}

// releaseDeadline bounds how long it takes to give the lease back.
const releaseDeadline = 2 * time.Second

var (
	errOther = errors.New("another process holds the lease")
	errStops = errors.New("this process stops")
)

// Lead calls run in each term of this process, until ctx ends or run returns while
// the term goes on.
func (e *Elector) Lead(ctx context.Context, run func(ctx context.Context) error) error {
	for {
		t := e.wait(ctx)
		if t == nil {
			return nil
		}
		if over, err := t.run(ctx, run); !over {
			return err
		}
	}
}

// wait waits for a term; nil: ctx has ended.
func (e *Elector) wait(ctx context.Context) *term {
	for {
		e.mu.Lock()
		t, begun := e.mu.term, e.mu.begun
		e.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if t != nil && !t.ended() {
			return t
		}
		select {
		case <-begun:
		case <-ctx.Done():
			return nil
		}
	}
}

// Run stands for election again and again until ctx ends. It then gives the lease back,
// so that another takes over at once: the API must still answer.
func (e *Elector) Run(ctx context.Context) error {
	select {
	case <-e.seen.Synced():
	case <-ctx.Done():
		return nil
	}
	for {
		lease, since := e.acquire(ctx)
		if lease == nil {
			return nil
		}
		if err := e.caughtUp(ctx, lease, since); err == nil {
			lease = e.serve(ctx, lease, since)
		} else if ctx.Err() == nil {
			e.log.Warn("begin a term: the caches are not as new as the lease", "err", err)
		}
		if ctx.Err() != nil {
			e.release(context.WithoutCancel(ctx), lease)
			return nil
		}
	}
}

// caughtUp waits until the caches show all that was written before the term (L5).
func (e *Elector) caughtUp(ctx context.Context, lease *coordinationv1.Lease, since time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, since.Add(e.o.Settings.RenewDeadline))
	defer cancel()
	return e.seen.WaitRev(ctx, revision(lease))
}

// serve is one term, from beginning to end. It returns the lease as it was last written.
func (e *Elector) serve(ctx context.Context, lease *coordinationv1.Lease, since time.Time) *coordinationv1.Lease {
	t := e.begin(lease)
	why := e.keep(ctx, t, since)
	t.end(why)
	t.running.Wait() // L3, L4
	e.o.Metrics.set(e.o.Name, 0)
	e.o.Events.Event(t.lease, corev1.EventTypeNormal, "LeaderElection", e.o.Identity+" stopped leading")
	e.log.Info("stopped leading", "err", why)
	return t.lease
}

// acquire waits until the lease is free and takes it. A lease that nobody has changed for
// as long as it is good for is free: what counts is this process's clock. since is when it was asked
// for; nil: ctx has ended.
func (e *Elector) acquire(ctx context.Context) (_ *coordinationv1.Lease, since time.Time) {
	f := e.seen.Follow(cache.FollowOptions{Namespace: e.o.Settings.Namespace})
	defer f.Close()
	free := time.NewTimer(0)
	defer free.Stop()
	var now *coordinationv1.Lease
	look := func(changes []cache.Delta) {
		for _, d := range changes {
			if d.Last().Object.GetName() != e.o.Name {
				continue
			}
			now = nil
			if d.Now != nil {
				now = d.Now.Object.(*coordinationv1.Lease)
			}
			free.Reset(e.freeIn(now))
		}
	}
	for look(f.Next()); ; {
		select {
		case <-ctx.Done():
			return nil, since
		case <-f.Ready():
			look(f.Next())
			continue
		case <-free.C:
		}
		since = time.Now()
		lease, err := e.take(ctx, now)
		switch {
		case err == nil:
			return lease, since
		case ctx.Err() != nil:
			return nil, since
		case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err):
			e.log.Warn("take the lease", "err", err)
		}
		free.Reset(e.o.Settings.RetryPeriod) // another was faster, which is about to be seen, or the API does not answer
	}
}

// freeIn is how long a lease that was just changed is not to be taken.
func (e *Elector) freeIn(l *coordinationv1.Lease) time.Duration {
	if l == nil {
		return 0
	}
	if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder == "" || holder == e.o.Identity {
		return 0
	}
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// take makes this process the holder of the lease, which is as now (nil: there is none).
func (e *Elector) take(ctx context.Context, now *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Settings.RenewDeadline)
	defer cancel()
	at := metav1.NowMicro()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.o.Settings.Namespace, Name: e.o.Name}}
	if now != nil {
		l = now.DeepCopy()
	}
	s := &l.Spec
	if ptr.Deref(s.HolderIdentity, "") != e.o.Identity {
		if now != nil {
			s.LeaseTransitions = ptr.To(ptr.Deref(s.LeaseTransitions, 0) + 1)
		} else {
			s.LeaseTransitions = ptr.To[int32](0)
		}
		s.HolderIdentity, s.AcquireTime = &e.o.Identity, &at
	}
	s.LeaseDurationSeconds, s.RenewTime = ptr.To(int32(e.o.Settings.LeaseDuration/time.Second)), &at
	if now == nil {
		return e.leases.Create(ctx, l)
	}
	return e.leases.Update(ctx, l)
}

// begin begins a term with the lease as it was just written.
func (e *Elector) begin(lease *coordinationv1.Lease) *term {
	t := newTerm(lease)
	key := coordination.Leases.Def.Key(lease.Namespace, lease.Name)
	t.hold = fence.NewHold(store.Cond{Key: key, Rev: revision(lease)},
		func(value []byte) bool { return e.holds(value, lease) },
		func() { t.end(fence.ErrLost) })
	e.mu.Lock()
	e.mu.term = t
	close(e.mu.begun)
	e.mu.begun = make(chan struct{})
	e.mu.Unlock()
	e.o.Metrics.set(e.o.Name, 1)
	e.o.Events.Event(lease, corev1.EventTypeNormal, "LeaderElection", e.o.Identity+" became leader")
	e.log.Info("became leader")
	return t
}

// revision is that of a stored object. Of what is no number it is 0: the first write then
// looks at the lease itself.
func revision(l *coordinationv1.Lease) int64 {
	rev, _ := strconv.ParseInt(l.ResourceVersion, 10, 64)
	return rev
}

// holds says that a value of the store is a lease of the term that began with lease.
func (e *Elector) holds(value []byte, lease *coordinationv1.Lease) bool {
	obj, err := watchcache.Decode(coordination.Leases.Def, value, 0)
	if err != nil {
		return false // whatever it is, it is not what this process has written
	}
	return same(obj.(*coordinationv1.Lease), lease)
}

// same says that two states of a lease are of one term.
func same(a, b *coordinationv1.Lease) bool {
	return ptr.Deref(a.Spec.HolderIdentity, "") == ptr.Deref(b.Spec.HolderIdentity, "") &&
		ptr.Deref(a.Spec.LeaseTransitions, 0) == ptr.Deref(b.Spec.LeaseTransitions, 0)
}

// keep renews the lease, which was asked for at since, until the term is over, and
// says why it is.
func (e *Elector) keep(ctx context.Context, t *term, since time.Time) error {
	for {
		deadline := since.Add(e.o.Settings.RenewDeadline)
		again := time.NewTimer(min(e.o.Settings.RetryPeriod, time.Until(deadline)))
		select {
		case <-again.C:
		case <-t.over:
		case <-ctx.Done():
		}
		again.Stop()
		switch {
		case ctx.Err() != nil:
			return errStops
		case t.ended():
			return fence.ErrLost
		}
		asked := time.Now()
		err := e.renew(ctx, t, deadline)
		switch {
		case err == nil:
			since = asked
		case errors.Is(err, errOther):
			return err
		case !time.Now().Before(deadline):
			return fmt.Errorf("the lease was not renewed within %s: %w", e.o.Settings.RenewDeadline, err)
		default:
			e.log.Warn("renew the lease", "err", err)
		}
	}
}

// renew writes the lease once more.
func (e *Elector) renew(ctx context.Context, t *term, deadline time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	for {
		l := t.lease.DeepCopy()
		l.Spec.RenewTime = ptr.To(metav1.NowMicro())
		renewed, err := e.leases.Update(ctx, l)
		switch {
		case err == nil:
			t.lease = renewed
			t.hold.Renewed(revision(renewed))
			return nil
		case !apierrors.IsConflict(err) && !apierrors.IsNotFound(err):
			return err
		}
		l, err = e.leases.Get(ctx, l.Namespace, l.Name)
		switch {
		case apierrors.IsNotFound(err):
			return errOther
		case err != nil:
			return err
		case !same(l, t.lease):
			return errOther
		}
		t.lease = l // somebody has labelled it
	}
}

// release gives the lease back, if it is still as this process has written it.
func (e *Elector) release(ctx context.Context, lease *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(ctx, releaseDeadline)
	defer cancel()
	l := lease.DeepCopy()
	now := metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = nil, ptr.To[int32](1)
	l.Spec.RenewTime, l.Spec.AcquireTime = &now, &now
	if _, err := e.leases.Update(ctx, l); err != nil && !apierrors.IsConflict(err) {
		e.log.Warn("give the lease back", "err", err)
	}
}
