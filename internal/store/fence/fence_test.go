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
	h := fence.NewHold()
	if err := h.Take(b.Context(), b.claim(who)); err != nil {
		b.Fatal(err)
	}
	return fence.With(b.Context(), h), h
}

// claim writes the lease of somebody, and is what writes then depend on.
func (b *bed) claim(who string) fence.Claim {
	b.Helper()
	return fence.Claim{
		At:   store.Cond{Key: "/lease", Rev: b.put("/lease", who+" 1")},
		Held: func(value []byte) bool { return strings.HasPrefix(string(value), who+" ") },
		Lost: func() { b.lost++ },
	}
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

// slow is a store whose writes wait for a word.
type slow struct {
	store.Store
	asked, word chan struct{}
}

func (s slow) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if len(t.Conds) == 1 && t.Conds[0].Key == "/late" {
		s.asked <- struct{}{}
		<-s.word
	}
	return s.Store.Txn(ctx, t)
}

func TestWhoWasAloneWaitsForItsWritesUnderWay(t *testing.T) {
	inner := slow{mem.New(mem.Options{}), make(chan struct{}), make(chan struct{})}
	b := &bed{T: t, inner: inner, s: fence.Store{Store: inner}}
	h := fence.NewHold()
	alone := fence.With(t.Context(), h)
	if got := b.write(alone, "/a"); got != "written" {
		t.Errorf("write of who is alone: got %s", got)
	}
	late := make(chan string)
	go func() { late <- b.write(alone, "/late") }()
	<-inner.asked
	claim := b.claim("first")
	soon, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	if err := h.Take(soon, claim); err == nil || err.Error() != "no time" {
		t.Errorf("with a write under way: got %v, want that there is no time", err)
	}
	taken := make(chan error)
	go func() { taken <- h.Take(t.Context(), claim) }()
	close(inner.word)
	if got := <-late; got != "written" {
		t.Errorf("the write under way: got %s", got)
	}
	if err := <-taken; err != nil {
		t.Error(err)
	}
	if got := b.write(alone, "/b"); got != "written" {
		t.Errorf("write of who holds: got %s", got)
	}
	b.put("/lease", "second 1")
	if got := b.write(alone, "/c"); got != "lost" {
		t.Errorf("write of who held: got %s, want lost", got)
	}
}
