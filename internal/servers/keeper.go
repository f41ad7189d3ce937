package servers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/obs"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

const (
	// life is how long a record stays that nobody renews. An election among the members of the
	// store, which makes all lives begin anew, comes before: a server that is killed is out after
	// nine seconds at the latest.
	life = 5 * time.Second
	// margin is by how much Until is earlier than the record can go.
	margin = 500 * time.Millisecond
	// renewal is how often it is renewed, and retry how soon again if that fails.
	renewal = 1500 * time.Millisecond
	retry   = 250 * time.Millisecond
	// leaving is how long it may take to remove the record at the end.
	leaving = 2 * time.Second
)

// Options configure a Keeper. All are required.
type Options struct {
	Self   Self
	Store  store.Store
	Leases *cache.Cache // of the whole cluster
	Logger *slog.Logger
}

// Keeper keeps the record of this process while Run runs. Its methods may be called concurrently.
//
// The record goes to the store past the API: it hangs on a life of the store, which is
// renewed without a write, and ends without one of ours.
type Keeper struct {
	o     Options
	kept  chan struct{} // closed when the record is there for the first time
	moved chan struct{} // a token: there is something to write

	mu struct {
		sync.Mutex
		address netip.AddrPort
		until   time.Time
	}

	// What follows belongs to the goroutine of Run.
	began   time.Time
	life    store.Life // 0: none
	rev     int64      // of the record as it was last written
	written time.Time
}

// NewKeeper returns a keeper that keeps nothing yet.
func NewKeeper(o Options) *Keeper {
	k := &Keeper{o: o, kept: make(chan struct{}), moved: make(chan struct{}, 1)}
	k.mu.address = o.Self.Address
	return k
}

// Kept is closed when the record is there for the first time.
func (k *Keeper) Kept() <-chan struct{} { return k.kept }

// Identity is who holds the record.
func (k *Keeper) Identity() string { return k.o.Self.Identity() }

// Until is how long the record is there at least, as far as is known (V1, V2).
func (k *Keeper) Until() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.mu.until
}

// Move says that the server's API has another address.
func (k *Keeper) Move(addr netip.AddrPort) {
	k.mu.Lock()
	same := k.mu.address == addr
	k.mu.address = addr
	k.mu.Unlock()
	if same {
		return
	}
	select {
	case k.moved <- struct{}{}:
	default: // the token is there
	}
}

// Clear removes the records of others, which have come here as a copy and without a life. Who calls it is
// alone with the store: none of them lives.
func (k *Keeper) Clear(ctx context.Context) error {
	var t store.Txn
	for _, l := range records(k.o.Leases) {
		if _, ours := l.Annotations[annotationAddress]; ours && l.Name != k.o.Self.Name() {
			t.Ops = append(t.Ops, store.Op{Key: coordination.Leases.Def.Key(l.Namespace, l.Name)})
		}
	}
	if len(t.Ops) == 0 {
		return nil
	}
	if _, err := k.o.Store.Txn(ctx, t); err != nil {
		return fmt.Errorf("remove the records of servers that are gone: %w", err)
	}
	return nil
}

// Run keeps the record until ctx ends, and then removes it.
func (k *Keeper) Run(ctx context.Context) error {
	k.began = time.Now()
	defer k.leave(context.WithoutCancel(ctx))
	var failures obs.Row
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		moved := false
		select {
		case <-next.C:
		case <-k.moved:
			moved = true
		case <-ctx.Done():
			return nil
		}
		wait := renewal
		if err := k.keep(ctx, moved); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			k.o.Logger.Log(ctx, failures.Failed(), "tell the other servers that this one lives", "err", err)
			wait = retry
		} else {
			failures.Over()
		}
		next.Reset(wait)
	}
}

// keep renews the record's life, and writes the record if it is not there as it should be.
func (k *Keeper) keep(ctx context.Context, moved bool) error {
	asked := time.Now() // V2
	ctx, cancel := context.WithTimeoutCause(ctx, life, errors.New("the store has not answered in time"))
	defer cancel()
	if k.life != 0 {
		err := k.o.Store.RenewLife(ctx, k.life)
		if errors.Is(err, store.ErrLifeOver) {
			k.life, err = 0, nil
		}
		if err != nil {
			return err
		}
	}
	if k.life == 0 {
		l, err := k.o.Store.BeginLife(ctx, life)
		if err != nil {
			return err
		}
		k.life, moved = l, true
	}
	if moved || k.stale(asked) {
		if err := k.write(ctx, asked); err != nil {
			return err
		}
	}
	k.mu.Lock()
	k.mu.until = asked.Add(life - margin)
	k.mu.Unlock()
	select {
	case <-k.kept:
	default:
		close(k.kept)
	}
	return nil
}

// stale says that the record is to be written anew: it is old, or somebody has changed or deleted it.
func (k *Keeper) stale(now time.Time) bool {
	if now.Sub(k.written) > recordSeconds*time.Second/2 {
		return true
	}
	if k.o.Leases.Rev() < k.rev {
		return false // what was written is yet to be seen
	}
	it := k.o.Leases.Get(cache.Key(metav1.NamespaceSystem, k.o.Self.Name()))
	return it == nil || it.Rev != k.rev
}

func (k *Keeper) write(ctx context.Context, now time.Time) error {
	self := k.o.Self
	k.mu.Lock()
	self.Address = k.mu.address
	k.mu.Unlock()
	value, err := watchcache.Encode(coordination.Leases.Def, self.record(k.began, now))
	if err != nil {
		return err
	}
	res, err := k.o.Store.Txn(ctx, store.Txn{Ops: []store.Op{{Key: self.key(), Value: value, Life: k.life}}})
	if errors.Is(err, store.ErrLifeOver) {
		k.life = 0
	}
	if err != nil {
		k.written = time.Time{} // again, whether or not it was made
		return fmt.Errorf("write the record %s of this server: %w", self.Name(), err)
	}
	k.rev, k.written = res.Rev, now
	return nil
}

// leave removes the record.
func (k *Keeper) leave(ctx context.Context) {
	if k.life == 0 {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leaving, errors.New("the store has not answered in time"))
	defer cancel()
	if err := k.o.Store.EndLife(ctx, k.life); err != nil {
		k.o.Logger.Warn("tell the other servers that this one ends: they will find out", "err", err)
	}
}
