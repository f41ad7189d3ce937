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
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
)

// server makes writes that allocate values, as the API server does: anew after each conflict.
type server struct {
	st    store.Store
	alloc *alloc.Allocator
}

func (s *server) write(ctx context.Context, owner string, commit func(*alloc.Tx) error) error {
	for {
		tx := s.alloc.Begin(ctx, owner)
		if err := commit(tx); err != nil {
			return errors.Join(err, tx.Err)
		}
		var txn store.Txn
		tx.AddTo(&txn)
		res, err := s.st.Txn(ctx, txn)
		switch {
		case err != nil:
			return err
		case res.OK:
			tx.Committed(res.Rev)
			return nil
		}
		s.alloc.Lost(txn.Conds, res.Now)
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

func TestWhatAnotherServerHasReleasedIsGivenAgain(t *testing.T) {
	st := mem.New(mem.Options{})
	shared := alloc.Options{Store: st, Shared: true}
	one, other := &server{st, alloc.New(shared)}, &server{st, alloc.New(shared)}
	take := func(name string) func(*alloc.Tx) error {
		return func(tx *alloc.Tx) error { return tx.Allocate("addresses", name) }
	}
	release := func(name string) func(*alloc.Tx) error {
		return func(tx *alloc.Tx) error { tx.Release("addresses", name); return nil }
	}
	any := func(tx *alloc.Tx) error {
		_, err := tx.AllocateAny("addresses", slices.Values([]string{"a", "b"}))
		return err
	}
	for round := range 3 {
		x, y := fmt.Sprint("x", round), fmt.Sprint("y", round)
		for i, step := range []struct {
			s      *server
			owner  string
			commit func(*alloc.Tx) error
			want   error
		}{
			{one, x, take("a"), nil},
			{other, y, take("a"), resource.ErrAllocated},
			{other, y, any, nil}, // it has learnt of a, and takes b
			{other, "z", any, resource.ErrExhausted},
			{one, "z", any, resource.ErrExhausted},
			{one, x, release("a"), nil},
			{other, "z", take("a"), nil}, // it knows of a as taken
			{other, "z", release("a"), nil},
			{other, y, release("b"), nil},
			{one, "z", any, nil}, // it knows of b as taken
			{one, "z", any, nil},
			{other, "z", any, resource.ErrExhausted},
			{one, "z", release("a"), nil},
			{one, "z", release("b"), nil},
			{other, "z", any, nil}, // both are taken as far as it knows
			{other, "z", release("a"), nil},
		} {
			if err := step.s.write(t.Context(), step.owner, step.commit); !errors.Is(err, step.want) {
				t.Errorf("round %d, step %d: got %v, want %v", round, i, err, step.want)
			}
		}
	}
	page, err := st.List(t.Context(), "/registry/", store.ListOptions{})
	if err != nil || len(page.KVs) != 0 {
		t.Errorf("all was released: got %v, %v", page.KVs, err)
	}
}
