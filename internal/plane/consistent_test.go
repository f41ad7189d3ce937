package plane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
)

// uneven is a store whose changes are told of sooner or later, differently each time.
type uneven struct {
	store.Store
	most time.Duration
	rng  *rand.Rand // of the one watch
}

func (u uneven) Watch(ctx context.Context, prefix string, after int64, fn func([]store.Change, int64) error) error {
	return u.Store.Watch(ctx, prefix, after, func(changes []store.Change, progress int64) error {
		if err := task.Sleep(ctx, time.Duration(u.rng.Int64N(int64(u.most)))); err != nil {
			return err
		}
		return fn(changes, progress)
	})
}

// oracle knows what has been answered: what is asked for afterwards may not be older.
type oracle struct {
	mu      sync.Mutex
	written map[string]int64 // by name: the revision of the last write that was answered
	highest int64
}

func (o *oracle) answered(name string, rev int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written[name] = max(o.written[name], rev)
	o.highest = max(o.highest, rev)
}

// least is at what revision an object must be that is read now, and the list of all.
func (o *oracle) least(name string) (object, list int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.written[name], o.highest
}

func revOf(text string) int64 {
	rev, _ := strconv.ParseInt(text, 10, 64)
	return rev
}

// TestServersNeverShowAnOlderState has clients write and read at random by three servers whose
// feeds lag, one of which was alone at the beginning, another of which ends and begins again. What is
// read as the newest state is never older than what was answered before, by whichever server.
func TestServersNeverShowAnOlderState(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
				rng := func(who uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, who)) }
				st := mem.New(mem.Options{})
				first, _ := start(t, Options{Store: uneven{st, 20 * time.Millisecond, rng(0)}, Host: "s0"})
				if err := first.Share(t.Context()); err != nil {
					t.Fatal(err)
				}
				planes := []*Plane{first}
				for i := 1; i < n; i++ {
					p, _ := start(t, Options{Store: uneven{st, time.Duration(i) * 60 * time.Millisecond, rng(uint64(i))}, Host: fmt.Sprint("s", i), Shared: true})
					planes = append(planes, p)
				}
				base, err := st.Rev(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range planes {
					if err := p.caches.Progress().Wait(t.Context(), base); err != nil {
						t.Fatal(err)
					}
				}
				o := &oracle{written: map[string]int64{}}
				trace.Proves(t, "COMP-007")
				g := task.NewGroup(t.Context())
				for c := range 8 {
					g.Go("client", func(ctx context.Context) error {
						rng := rng(uint64(10 + c))
						for i := range 60 {
							if err := operate(ctx, planes[rng.IntN(n)], o, rng); err != nil {
								return fmt.Errorf("client %d, step %d: %w", c, i, err)
							}
						}
						return nil
					})
				}
				if err := g.Wait(); err != nil {
					t.Error(err)
				}
				continued(t, &history{st, planes, base, rng(9)})
			})
		})
	}
}

// operate does one thing at random, and says what was wrong with the answer.
func operate(ctx context.Context, p *Plane, o *oracle, rng *rand.Rand) error {
	name := fmt.Sprint("m", rng.IntN(5))
	maps := client.For(p.Admin(), core.ConfigMaps)
	object, all := o.least(name)
	switch rng.IntN(4) {
	case 0:
		made, err := maps.Create(ctx, configMap(name))
		if err == nil {
			o.answered(name, revOf(made.ResourceVersion))
		}
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
		return err
	case 1:
		err := maps.Delete(ctx, "default", name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	case 2:
		m, err := maps.Get(ctx, "default", name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if got := revOf(m.ResourceVersion); got < object {
			return fmt.Errorf("%s: read at revision %d, it had been written at %d", name, got, object)
		}
		m = m.DeepCopy()
		m.Data = map[string]string{"n": strconv.Itoa(rng.Int())}
		m, err = maps.Update(ctx, m)
		if err == nil {
			o.answered(name, revOf(m.ResourceVersion))
		}
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	default:
		if _, err := maps.List(ctx, "default", metav1.ListOptions{}); err != nil {
			return err
		}
		if got := p.caches.Progress().Rev(); got < all {
			return fmt.Errorf("a list of the newest state at revision %d, %d had been answered", got, all)
		}
		return nil
	}
}

// history is what several servers tell of what has changed since a revision.
type history struct {
	store  store.Store
	planes []*Plane
	base   int64
	rng    *rand.Rand
}

// continued follows the changes by one server after the other, going on where the last
// one was: none is missing, none comes twice, and none is out of order.
func continued(t *testing.T, h *history) {
	t.Helper()
	st, planes, base := h.store, h.planes, h.base
	var want []int64
	prefix := core.ConfigMaps.Def.Key("default", "")
	done, enough := context.WithCancel(t.Context())
	end, err := st.Rev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = st.Watch(done, prefix, base, func(changes []store.Change, rev int64) error { // until it is told to end
		for _, c := range changes {
			want = append(want, c.Rev)
		}
		if rev >= end {
			enough()
		}
		return nil
	})
	var got []int64
	after := base
	for i := 0; after < end; i++ {
		c := planes[i%len(planes)].caches.Cache(core.ConfigMaps.Def)
		if err := c.WaitRev(t.Context(), min(after+1, end)); err != nil {
			t.Fatal(err)
		}
		cu, err := c.Cursor(cache.CursorOptions{Namespace: "default", After: after})
		if err != nil {
			t.Fatalf("go on after %d: %v", after, err)
		}
		upTo := c.Rev()
		events, err := cu.Next()
		cu.Close()
		if err != nil {
			t.Fatal(err)
		}
		events = events[:min(len(events), 1+h.rng.IntN(10))]
		for _, e := range events {
			got = append(got, e.Item.Rev)
			after = e.Item.Rev
		}
		if len(events) == 0 {
			after = upTo
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("changes by several servers:\ngot  %v\nwant %v", got, want)
	}
	if len(want) < 20 {
		t.Errorf("only %d changes: nothing was tested", len(want))
	}
}
