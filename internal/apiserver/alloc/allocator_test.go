package alloc_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/internal/apiserver/alloc"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/task"
)

// server makes writes that allocate values, as the API server does: anew after each conflict.
type server struct {
	st    store.Store
	alloc *alloc.Allocator
}

func (s *server) write(ctx context.Context, owner string, commit func(*alloc.Tx) error) error {
	for {
		tx := s.alloc.Begin(ctx, owner, resource.Holder{})
		if err := commit(tx); err != nil {
			return errors.Join(err, tx.Err)
		}
		var txn store.Txn
		if err := tx.AddTo(&txn); err != nil {
			return err
		}
		res, err := s.st.Txn(ctx, txn)
		switch {
		case err != nil:
			return err
		case res.OK:
			tx.Committed(res.Rev)
			return nil
		}
		s.alloc.Lost(txn.Conds, res)
	}
}

// TestValueOfAnotherRequestIsNotTaken has two requests of one server begin at the same
// moment, again and again, one of them later each time. What must not happen lies between
// two instructions, where nothing can be held up from outside, so that only many tries
// find it.
func TestValueOfAnotherRequestIsNotTaken(t *testing.T) {
	st := mem.New(mem.Options{})
	s := &server{st, alloc.New(alloc.Options{Store: st})}
	const rounds, later = 40_000, 150
	var arrived atomic.Int64
	got := [2][]string{make([]string, rounds), make([]string, rounds)}
	together := func(who, late int) error {
		for i := range rounds {
			arrived.Add(1)
			for arrived.Load() < 2*int64(i+1) {
				runtime.Gosched()
			}
			for range i % later * late {
				// Up to some microseconds, about as long as a write takes.
			}
			err := s.write(t.Context(), fmt.Sprint("object ", who), func(tx *alloc.Tx) (err error) {
				got[who][i], err = tx.AllocateAny("addresses", slices.Values([]string{fmt.Sprint("a", i), fmt.Sprint("b", i)}))
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	var wg sync.WaitGroup
	for who := range got {
		wg.Go(func() {
			if err := together(who, 60*who); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range rounds {
		if got[0][i] == got[1][i] {
			t.Fatalf("round %d: both were given %s", i, got[0][i])
		}
	}
}

// fed is a server that is told of all changes, and waits for them before each write.
type fed struct {
	server
	told *cache.Progress
}

// newFed returns a server that is fed until the test ends.
func newFed(t *testing.T, st store.Store) fed {
	f := fed{server{st, alloc.New(alloc.Options{Store: st})}, &cache.Progress{}}
	g := task.NewGroup(t.Context())
	g.Go("feed", func(ctx context.Context) error {
		return st.Watch(ctx, "/registry/", 0, func(changes []store.Change, rev int64) error {
			f.alloc.Told(changes, rev)
			f.told.Advance(rev)
			return nil
		})
	})
	t.Cleanup(func() {
		g.Cancel(context.Canceled)
		_ = g.Wait() // it was told to end
	})
	return f
}

func (f fed) write(ctx context.Context, owner string, commit func(*alloc.Tx) error) error {
	rev, err := f.st.Rev(ctx)
	if err != nil {
		return err
	}
	if err := f.told.Wait(ctx, rev); err != nil {
		return err
	}
	return f.server.write(ctx, owner, commit)
}

func take(name string) func(*alloc.Tx) error {
	return func(tx *alloc.Tx) error { return tx.Allocate("addresses", name) }
}

func release(name string) func(*alloc.Tx) error {
	return func(tx *alloc.Tx) error { tx.Release("addresses", name); return nil }
}

func takeAny(tx *alloc.Tx) error {
	_, err := tx.AllocateAny("addresses", slices.Values([]string{"a", "b"}))
	return err
}

func TestWhatAnotherServerHasReleasedIsGivenAgain(t *testing.T) {
	st := &counted{Store: mem.New(mem.Options{})}
	one, other := newFed(t, st), newFed(t, st)
	for round := range 3 {
		x, y := fmt.Sprint("x", round), fmt.Sprint("y", round)
		for i, step := range []struct {
			s      fed
			owner  string
			commit func(*alloc.Tx) error
			want   error
		}{
			{one, x, take("a"), nil},
			{other, y, take("a"), resource.ErrAllocated},
			{other, y, takeAny, nil}, // it has been told of a, and takes b
			{other, "z", takeAny, resource.ErrExhausted},
			{one, "z", takeAny, resource.ErrExhausted},
			{one, x, release("a"), nil},
			{other, "z", take("a"), nil},
			{other, "z", release("a"), nil},
			{other, y, release("b"), nil},
			{one, "z", takeAny, nil},
			{one, "z", takeAny, nil},
			{other, "z", takeAny, resource.ErrExhausted},
			{one, "z", release("a"), nil},
			{one, "z", release("b"), nil},
			{other, "z", takeAny, nil},
			{other, "z", release("a"), nil},
		} {
			if err := step.s.write(t.Context(), step.owner, step.commit); !errors.Is(err, step.want) {
				t.Errorf("round %d, step %d: got %v, want %v", round, i, err, step.want)
			}
		}
	}
	if got := st.lists.Load(); got != 2 {
		t.Errorf("the allocations were read %d times, want once by each server", got)
	}
	if got := st.refused.Load(); got != 0 {
		t.Errorf("%d transactions were refused, want none: both know what the other has done", got)
	}
	page, err := st.List(t.Context(), "/registry/", store.ListOptions{})
	if err != nil || len(page.KVs) != 0 {
		t.Errorf("all was released: got %v, %v", page.KVs, err)
	}
}

// counted counts what a store is asked.
type counted struct {
	store.Store
	lists, refused atomic.Int64
}

func (c *counted) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, prefix, o)
}

func (c *counted) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	res, err := c.Store.Txn(ctx, t)
	if err == nil && !res.OK {
		c.refused.Add(1)
	}
	return res, err
}

// TestWhatIsToldLateChangesNothing has the store tell of changes before and after a server
// has made or read newer ones.
func TestWhatIsToldLateChangesNothing(t *testing.T) {
	st := mem.New(mem.Options{})
	s := &server{st, alloc.New(alloc.Options{Store: st})}
	changed := func(name, owner string, rev int64) store.Change {
		c := store.Change{KV: store.KV{Key: "/registry/kemudi/claims/addresses/" + name, Rev: rev}}
		if owner != "" {
			c.Value = []byte(owner)
		}
		return c
	}
	for _, do := range []func(*alloc.Tx) error{take("a"), release("a"), take("a")} { // 2, 3 and 4
		if err := s.write(t.Context(), "x", do); err != nil {
			t.Fatal(err)
		}
	}
	s.alloc.Told([]store.Change{changed("a", "x", 2)}, 2)
	if err := s.write(t.Context(), "y", take("b")); err != nil { // 5
		t.Fatal(err)
	}
	s.alloc.Told([]store.Change{changed("a", "", 3), changed("a", "x", 4)}, 4)
	for _, step := range []struct {
		owner string
		do    func(*alloc.Tx) error
		want  error
	}{
		{"y", take("a"), resource.ErrAllocated},
		{"x", take("b"), resource.ErrAllocated}, // which it was not told of
		{"x", takeAny, resource.ErrExhausted},
		{"x", release("a"), nil},
		{"y", takeAny, nil},
	} {
		if err := s.write(t.Context(), step.owner, step.do); !errors.Is(err, step.want) {
			t.Errorf("%s: got %v, want %v", step.owner, err, step.want)
		}
	}
	rev, err := st.Rev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.alloc.Missed(rev) // whatever was known is read again
	if err := s.write(t.Context(), "x", takeAny); !errors.Is(err, resource.ErrExhausted) {
		t.Errorf("after changes that were missed: got %v, want that nothing is free", err)
	}
}
