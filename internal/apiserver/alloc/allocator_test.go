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
	s := &server{st, alloc.New(st, nil)}
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
