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
	"github.com/kemudi/kemudi/internal/servers"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/fence"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// Options say what an elector stands for. All but Events and Metrics are required.
type Options struct {
	Settings Settings
	Name     string // of the lease
	Identity string // of this process: no other may ever have it
	// Alone says that nobody else stands for election before Run: until then this process leads, and
	// needs no lease for that.
	Alone bool
	// Record shows to others that this process lives: as soon as they do not see it any more they may take
	// its leases, without waiting for these to run out. Nil: they wait.
	Record *servers.Keeper
	// Transport may read and write the lease, past what the process may do as a leader.
	Transport client.Transport
	Events    client.EventSink // nil: no events are written
	Metrics   *Metrics         // nil: none
	Logger    *slog.Logger
}

// annotationRecord is on the leases of a process that has a record: the identity of that.
const annotationRecord = "kemudi.io/server-record"

// Elector takes part in one election while Run runs.
type Elector struct {
	o      Options
	log    *slog.Logger
	leases client.Client[*coordinationv1.Lease]
	seen   client.Reader[*coordinationv1.Lease]

	held chan struct{} // closed when this process has had the lease

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
	e.held, e.mu.begun = make(chan struct{}), make(chan struct{})
	if o.Alone {
		e.mu.term = newTerm()
	} else {
		o.Metrics.set(o.Name, 0)
	}
	return e
}

// Held is closed when this process has taken the lease for the first time, and all that runs
// depends on it.
func (e *Elector) Held() <-chan struct{} { return e.held }

// releaseDeadline bounds how long it takes to give the lease back.
const releaseDeadline = 2 * time.Second

var (
	errOther = errors.New("another process holds the lease")
	errStops = errors.New("this process stops")
	errAway  = errors.New("the other servers may take this one for dead: its record was not renewed in time")
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
// so that another takes over at once: the API must still answer. The term of who was alone goes on
// meanwhile, and gets the lease.
func (e *Elector) Run(ctx context.Context) error {
	select {
	case <-e.seen.Synced():
	case <-ctx.Done():
		return nil
	}
	if e.o.Record != nil {
		select {
		case <-e.o.Record.Kept():
		case <-ctx.Done():
			return nil
		}
	}
	e.mu.Lock()
	t := e.mu.term
	e.mu.Unlock()
	for ; ; t = nil {
		ask := e.acquire
		if t != nil {
			ask = e.seize
		}
		lease, since := ask(ctx)
		if lease == nil {
			return nil
		}
		if t == nil {
			t = e.newTerm(ctx, lease, since)
		}
		if t != nil {
			lease = e.serve(ctx, t, lease, since)
		}
		if ctx.Err() != nil {
			e.release(context.WithoutCancel(ctx), lease)
			return nil
		}
	}
}

// newTerm is a term for a lease that was just taken, once the caches of this process
// show all that was written before (L5); nil: they did not in time.
func (e *Elector) newTerm(ctx context.Context, lease *coordinationv1.Lease, since time.Time) *term {
	if err := e.caughtUp(ctx, lease, since); err != nil {
		if ctx.Err() == nil {
			e.log.Warn("begin a term: the caches are not as new as the lease", "err", err)
		}
		return nil
	}
	return newTerm()
}

// caughtUp waits until the caches show all that was written before the lease.
func (e *Elector) caughtUp(ctx context.Context, lease *coordinationv1.Lease, since time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, since.Add(e.o.Settings.RenewDeadline))
	defer cancel()
	return e.seen.WaitRev(ctx, revision(lease))
}

// serve is a term with a lease, from beginning to end. It returns the lease as it was
// last written.
func (e *Elector) serve(ctx context.Context, t *term, lease *coordinationv1.Lease, since time.Time) *coordinationv1.Lease {
	t.lease = lease
	err := t.hold.Take(ctx, e.claim(t, lease))
	if err == nil {
		e.begin(t)
		err = e.keep(ctx, t, since)
	}
	t.end(err)
	t.running.Wait() // L3, L4
	e.o.Metrics.set(e.o.Name, 0)
	e.o.Events.Event(t.lease, corev1.EventTypeNormal, "LeaderElection", e.o.Identity+" stopped leading")
	e.log.Info("stopped leading", "err", err)
	return t.lease
}

// claim is what the writes of a term depend on.
func (e *Elector) claim(t *term, lease *coordinationv1.Lease) fence.Claim {
	return fence.Claim{
		At:   store.Cond{Key: coordination.Leases.Def.Key(lease.Namespace, lease.Name), Rev: revision(lease)},
		Held: func(value []byte) bool { return e.holds(value, lease) },
		Lost: func() { t.end(fence.ErrLost) },
	}
}

// begin lets those go on that wait for a term, and says that this process leads.
func (e *Elector) begin(t *term) {
	e.mu.Lock()
	if e.mu.term != t {
		e.mu.term = t
		close(e.mu.begun)
		e.mu.begun = make(chan struct{})
	}
	e.mu.Unlock()
	select {
	case <-e.held:
	default:
		close(e.held)
	}
	e.o.Metrics.set(e.o.Name, 1)
	e.o.Events.Event(t.lease, corev1.EventTypeNormal, "LeaderElection", e.o.Identity+" became leader")
	e.log.Info("became leader")
}

// seize takes the lease whoever has it: nobody else stands for election yet. since is when it was
// asked for; nil: ctx has ended.
func (e *Elector) seize(ctx context.Context) (_ *coordinationv1.Lease, since time.Time) {
	for {
		since = time.Now()
		now, err := e.leases.Get(ctx, e.o.Settings.Namespace, e.o.Name)
		if apierrors.IsNotFound(err) {
			now, err = nil, nil
		}
		var lease *coordinationv1.Lease
		if err == nil {
			lease, err = e.take(ctx, now)
		}
		if err == nil {
			return lease, since
		}
		if ctx.Err() == nil {
			e.log.Warn("take the lease, as others may stand for election soon", "err", err)
		}
		if task.Sleep(ctx, e.o.Settings.RetryPeriod) != nil {
			return nil, since
		}
	}
}

// acquire waits until the lease is free and takes it. A lease that nobody has changed for
// as long as it is good for is free: what counts is this process's clock. So is that of a process whose
// record is gone. since is when it was asked for; nil: ctx has ended.
func (e *Elector) acquire(ctx context.Context) (_ *coordinationv1.Lease, since time.Time) {
	f := e.seen.Follow(cache.FollowOptions{Namespace: e.o.Settings.Namespace})
	defer f.Close()
	records := e.seen.Follow(cache.FollowOptions{Namespace: metav1.NamespaceSystem})
	defer records.Close()
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
		case <-records.Ready():
			if records.Next(); e.dead(now) {
				free.Reset(0)
			}
			continue
		case <-free.C:
		}
		if !e.alive() {
			free.Reset(e.o.Settings.RetryPeriod) // others would take it away at once
			continue
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
	if holder := ptr.Deref(l.Spec.HolderIdentity, ""); holder == "" || holder == e.o.Identity || e.dead(l) {
		return 0
	}
	return time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
}

// dead says that the holder of a lease had a record, and has none any more. The record was there
// before the lease, and both are in one cache: what shows the lease has shown the record.
func (e *Elector) dead(l *coordinationv1.Lease) bool {
	if l == nil {
		return false
	}
	record := l.Annotations[annotationRecord]
	return servers.SameProcess(record, ptr.Deref(l.Spec.HolderIdentity, "")) && !servers.Lives(e.seen.Cache, record)
}

// alive says that others see that this process lives.
func (e *Elector) alive() bool { return e.o.Record == nil || time.Now().Before(e.o.Record.Until()) }

// take makes this process the holder of the lease, which is as now (nil: there is none).
func (e *Elector) take(ctx context.Context, now *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, e.o.Settings.RenewDeadline)
	defer cancel()
	at := metav1.NowMicro()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: e.o.Settings.Namespace, Name: e.o.Name}}
	if now != nil {
		l = now.DeepCopy()
	}
	delete(l.Annotations, annotationRecord)
	if e.o.Record != nil {
		metav1.SetMetaDataAnnotation(&l.ObjectMeta, annotationRecord, e.o.Record.Identity())
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
		until := deadline
		if e.o.Record != nil && e.o.Record.Until().Before(deadline) {
			until = e.o.Record.Until()
		}
		again := time.NewTimer(min(e.o.Settings.RetryPeriod, time.Until(until)))
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
		case !e.alive():
			return errAway // L1
		}
		asked := time.Now()
		err := e.renew(ctx, t, until)
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
