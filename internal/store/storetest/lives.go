package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// lives begins two lives of the shortest time and renews one of them: it outlasts the
// other, and what comes after that.
func lives(t *testing.T, s store.Store) {
	ctx := within(t)
	begin := func(key string) (store.Life, int64) {
		t.Helper()
		l, err := s.BeginLife(ctx, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return l, mustTxn(t, s, store.Txn{Ops: []store.Op{{Key: key, Value: []byte("x"), Life: l}}})
	}
	kept, _ := begin("/l/kept")
	asked := time.Now()
	dropped, rev := begin("/l/dropped")
	g := task.NewGroup(ctx)
	g.Go("renew", func(ctx context.Context) error {
		for task.Sleep(ctx, 200*time.Millisecond) == nil {
			if err := s.RenewLife(ctx, kept); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
	f := watchUntil(t, s, "/l/", rev, func(f *feed) bool { return len(f.changes) > 0 })
	if c := f.changes[0]; c.Key != "/l/dropped" || c.Value != nil || c.Rev <= rev {
		t.Errorf("got change %+v, want the deletion of /l/dropped", c)
	}
	if d := time.Since(asked); d < 2*time.Second {
		t.Errorf("a life of 2 s has ended after %s", d)
	}
	if err := s.RenewLife(ctx, dropped); !errors.Is(err, store.ErrLifeOver) {
		t.Errorf("renew a life that has ended: got %v", err)
	}
	if p := mustList(t, s, "/l/", store.ListOptions{}); len(p.KVs) != 1 {
		t.Errorf("left: got %s, want /l/kept", text(p.KVs))
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	watchUntil(t, s, "/l/", f.changes[0].Rev, func(f *feed) bool { return len(f.changes) > 0 })
	if p := mustList(t, s, "/l/", store.ListOptions{}); len(p.KVs) != 0 {
		t.Errorf("nobody renews anything: got %s", text(p.KVs))
	}
}

func livesEnd(t *testing.T, s store.Store) {
	ctx := within(t)
	l, err := s.BeginLife(ctx, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	rev := mustTxn(t, s, store.Txn{Ops: []store.Op{
		{Key: "/l/a", Value: []byte("1"), Life: l}, {Key: "/l/b", Value: []byte("1"), Life: l}, {Key: "/l/c", Value: []byte("1"), Life: l}, put("/l/d", "1"),
	}})
	mustPut(t, s, "/l/c", "2")
	for range 2 {
		if err := s.EndLife(ctx, l); err != nil {
			t.Fatal(err)
		}
	}
	f := watchUntil(t, s, "/l/", rev, func(f *feed) bool { return len(f.changes) == 3 }) // c, and then a and b
	if a, b := f.changes[1], f.changes[2]; a.Rev != b.Rev {
		t.Errorf("the keys of a life end at revisions %d and %d, want at one", a.Rev, b.Rev)
	}
	if p := mustList(t, s, "/l/", store.ListOptions{}); len(p.KVs) != 2 {
		t.Errorf("left: got %s, want /l/c, which was written again, and /l/d", text(p.KVs))
	}
	if err := s.RenewLife(ctx, l); !errors.Is(err, store.ErrLifeOver) {
		t.Errorf("renew: got %v", err)
	}
	if _, err := s.Txn(ctx, store.Txn{Ops: []store.Op{{Key: "/l/e", Value: []byte("1"), Life: l}}}); !errors.Is(err, store.ErrLifeOver) {
		t.Errorf("write with it: got %v", err)
	}
}
