package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

func failedCondition(t *testing.T, s store.Store) {
	rev := mustPut(t, s, "/a", "1")
	r, err := s.Txn(within(t), store.Txn{
		Conds: []store.Cond{{Key: "/a", Rev: rev}, {Key: "/b", Rev: rev}},
		Ops:   []store.Op{put("/a", "2"), put("/c", "1")},
	})
	if err != nil || r.OK || r.Rev != rev {
		t.Fatalf("got %+v, %v; want not OK at %d", r, err, rev)
	}
	if len(r.Now) != 2 || string(r.Now[0].Value) != "1" || r.Now[0].Rev != rev || r.Now[1].Key != "/b" || r.Now[1].Rev != 0 {
		t.Errorf("state told: got %+v, want /a at %d and /b missing", r.Now, rev)
	}
	if p := mustList(t, s, "/", store.ListOptions{}); text(p.KVs) != fmt.Sprintf("/a=1@%d ", rev) || p.Rev != rev {
		t.Errorf("state afterwards: got %s at %d, want the one before", text(p.KVs), p.Rev)
	}
}

func createOnce(t *testing.T, s store.Store) {
	create := store.Txn{Conds: []store.Cond{{Key: "/a"}}, Ops: []store.Op{put("/a", "1")}}
	rev := mustTxn(t, s, create)
	if r, err := s.Txn(within(t), create); err != nil || r.OK {
		t.Errorf("second create: got %+v, %v; want not OK", r, err)
	}
	mustTxn(t, s, store.Txn{Conds: []store.Cond{{Key: "/a", Rev: rev}}, Ops: []store.Op{{Key: "/a"}}})
	mustTxn(t, s, create)
}

func badTransactions(t *testing.T, s store.Store) {
	big := make([]byte, store.MaxTxnBytes)
	if _, err := s.Txn(within(t), store.Txn{Ops: []store.Op{{Key: "/a", Value: big}}}); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("transaction of more than %d bytes: got %v, want ErrTooLarge", store.MaxTxnBytes, err)
	}
	mustTxn(t, s, store.Txn{Ops: []store.Op{{Key: "/a", Value: big[:store.MaxTxnBytes-100]}}})
	if _, err := s.Txn(within(t), store.Txn{Ops: []store.Op{put("/b", "1"), put("/b", "2")}}); err == nil {
		t.Error("transaction that writes a key twice: got no error")
	}
	if kv, _, err := s.Get(within(t), "/b"); err != nil || kv.Rev != 0 {
		t.Errorf("after the refused transaction: got %+v, %v; want no key", kv, err)
	}
	var many []store.Op
	for i := range 2000 {
		many = append(many, put(fmt.Sprintf("/many/%d", i), "x"))
	}
	mustTxn(t, s, store.Txn{Ops: many})
}

func expiry(t *testing.T, s store.Store) {
	start := time.Now()
	rev := mustTxn(t, s, store.Txn{Ops: []store.Op{
		{Key: "/e/short", Value: []byte("x"), TTL: 2 * time.Second},
		{Key: "/e/long", Value: []byte("x"), TTL: time.Hour},
		{Key: "/e/ever", Value: []byte("x")},
	}})
	f := watchUntil(t, s, "/e/", rev, func(f *feed) bool { return len(f.changes) > 0 })
	c := f.changes[0]
	if c.Key != "/e/short" || c.Value != nil || c.Rev <= rev {
		t.Errorf("got change %+v, want the deletion of /e/short", c)
	}
	if d := time.Since(start); d < 2*time.Second-100*time.Millisecond {
		t.Errorf("key of 2 s expired after %s", d)
	}
	if p := mustList(t, s, "/e/", store.ListOptions{}); len(p.KVs) != 2 {
		t.Errorf("left: got %s, want /e/ever and /e/long", text(p.KVs))
	}
}

func expiryRenewed(t *testing.T, s store.Store) {
	mustTxn(t, s, store.Txn{Ops: []store.Op{
		{Key: "/r/kept", Value: []byte("1"), TTL: 2 * time.Second},
		{Key: "/r/longer", Value: []byte("1"), TTL: 2 * time.Second},
	}})
	mustPut(t, s, "/r/kept", "2")
	rev := mustTxn(t, s, store.Txn{Ops: []store.Op{
		{Key: "/r/longer", Value: []byte("2"), TTL: time.Hour},
		{Key: "/r/witness", Value: []byte("1"), TTL: 3 * time.Second},
	}})
	f := watchUntil(t, s, "/r/", rev, func(f *feed) bool { return len(f.changes) > 0 })
	if f.changes[0].Key != "/r/witness" {
		t.Errorf("first to expire: got %s, want /r/witness", f.changes[0].Key)
	}
	if p := mustList(t, s, "/r/", store.ListOptions{}); len(p.KVs) != 2 {
		t.Errorf("left: got %s, want both keys that were written again", text(p.KVs))
	}
}

// concurrency lets several writers count in shared keys by compare and set,
// while feeds check that each step is seen once.
func concurrency(t *testing.T, s store.Store) {
	const writers, steps, keys = 8, 25, 3
	for k := range keys {
		mustPut(t, s, fmt.Sprintf("/n/%d", k), "0")
	}
	start := mustList(t, s, "/n/", store.ListOptions{}).Rev
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range steps {
				if err := increment(t, s, fmt.Sprintf("/n/%d", (w+i)%keys)); err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
			}
		})
	}
	for range 3 {
		wg.Go(func() {
			count := map[string]int{}
			f := watchUntil(t, s, "/n/", start, func(f *feed) bool { return len(f.changes) >= writers*steps })
			for _, c := range f.changes {
				n, _ := strconv.Atoi(string(c.Value))
				if n != count[c.Key]+1 {
					t.Errorf("feed: %s went from %d to %s at %d, want a step of one", c.Key, count[c.Key], c.Value, c.Rev)
				}
				count[c.Key] = n
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, kv := range mustList(t, s, "/n/", store.ListOptions{}).KVs {
		n, _ := strconv.Atoi(string(kv.Value))
		sum += n
	}
	if sum != writers*steps {
		t.Errorf("counters: got %d in sum, want %d", sum, writers*steps)
	}
}

func increment(t *testing.T, s store.Store, key string) error {
	kv, _, err := s.Get(within(t), key)
	if err != nil {
		return err
	}
	for {
		n, _ := strconv.Atoi(string(kv.Value))
		r, err := s.Txn(within(t), store.Txn{
			Conds: []store.Cond{{Key: key, Rev: kv.Rev}},
			Ops:   []store.Op{put(key, strconv.Itoa(n+1))},
		})
		if err != nil || r.OK {
			return err
		}
		kv = r.Now[0]
	}
}

func cancelled(t *testing.T, s store.Store) {
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, _, err := s.Get(ctx, "/a"); err == nil {
		t.Error("Get: got no error")
	}
	if _, err := s.List(ctx, "/", store.ListOptions{}); err == nil {
		t.Error("List: got no error")
	}
	if _, err := s.Txn(ctx, store.Txn{Ops: []store.Op{put("/a", "1")}}); err == nil {
		t.Error("Txn: got no error")
	}
}
