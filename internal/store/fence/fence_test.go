package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/fence"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/storetest"
)

func TestFencedStoreIsAStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return fence.Store{Store: mem.New(mem.Options{})} })
}

// bed is a store with one lease and who holds it.
type bed struct {
	*testing.T
	inner store.Store
	s     fence.Store
	lost  int
}

func (b *bed) put(key, value string) int64 {
	b.Helper()
	op := store.Op{Key: key}
	if value != "" {
		op.Value = []byte(value)
	}
	res, err := b.inner.Txn(b.Context(), store.Txn{Ops: []store.Op{op}})
	if err != nil || !res.OK {
		b.Fatalf("put %s: got %v, %v", key, res, err)
	}
	return res.Rev
}

// take makes somebody the holder of the lease.
func (b *bed) take(who string) (context.Context, *fence.Hold) {
	b.Helper()
	rev := b.put("/lease", who+" 1")
	h := fence.NewHold(store.Cond{Key: "/lease", Rev: rev}, func(value []byte) bool { return strings.HasPrefix(string(value), who+" ") }, func() { b.lost++ })
	return fence.With(b.Context(), h), h
}

// write says what becomes of a write of a new key.
func (b *bed) write(ctx context.Context, key string) string {
	b.Helper()
	res, err := b.s.Txn(ctx, store.Txn{Conds: []store.Cond{{Key: key}}, Ops: []store.Op{{Key: key, Value: []byte("x")}}})
	switch {
	case errors.Is(err, fence.ErrLost):
		return "lost"
	case err != nil:
		return err.Error()
	case res.OK:
		return "written"
	}
	return fmt.Sprintf("refused, %d states", len(res.Now))
}

func TestOnlyTheHolderWrites(t *testing.T) {
	inner := mem.New(mem.Options{})
	b := &bed{T: t, inner: inner, s: fence.Store{Store: inner}}
	first, h := b.take("first")
	for _, step := range []struct {
		do   func()
		ctx  context.Context
		key  string
		want string
		lost int
	}{
		{nil, first, "/a", "written", 0},
		{nil, first, "/a", "refused, 1 states", 0},
		{func() { b.put("/lease", "first 2") }, first, "/b", "written", 0}, // renewed: nobody has told the hold
		{func() { h.Renewed(b.put("/lease", "first 3")) }, first, "/c", "written", 0},
		{func() { h.Renewed(1) }, first, "/d", "written", 0}, // told late
		{func() { b.put("/lease", "first 4") }, first, "/a", "refused, 1 states", 0},
		{func() { b.put("/lease", "second 1") }, first, "/e", "lost", 1},
		{nil, first, "/a", "lost", 2},
		{nil, t.Context(), "/e", "written", 2}, // who holds nothing needs nothing
		{func() { b.put("/lease", "") }, first, "/f", "lost", 3},
	} {
		if step.do != nil {
			step.do()
		}
		if got := b.write(step.ctx, step.key); got != step.want || b.lost != step.lost {
			t.Errorf("write of %s: got %s, told %d times, want %s, %d times", step.key, got, b.lost, step.want, step.lost)
		}
	}
}
