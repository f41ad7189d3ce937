package storetest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kemudi/kemudi/internal/store"
)

func missingKey(t *testing.T, s store.Store) {
	kv, rev, err := s.Get(within(t), "/a")
	if err != nil || kv.Rev != 0 || kv.Value != nil || kv.Key != "/a" || rev < 1 {
		t.Errorf("Get of a missing key: got %+v, store at %d, %v; want the key alone", kv, rev, err)
	}
}

func readBack(t *testing.T, s store.Store) {
	for _, value := range []string{"one", "two", ""} {
		rev := mustPut(t, s, "/a", value)
		kv, now, err := s.Get(within(t), "/a")
		if err != nil || string(kv.Value) != value || kv.Value == nil || kv.Rev != rev || now < rev {
			t.Errorf("Get after writing %q at %d: got %+v, store at %d, %v", value, rev, kv, now, err)
		}
	}
	rev := mustDelete(t, s, "/a")
	kv, now, err := s.Get(within(t), "/a")
	if err != nil || kv.Rev != 0 || now != rev {
		t.Errorf("Get after deleting at %d: got %+v, store at %d, %v", rev, kv, now, err)
	}
}

func revisionIsFresh(t *testing.T, s store.Store) {
	for range 20 {
		want := mustPut(t, s, "/a", "x")
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if rev, err := s.Rev(within(t)); err != nil || rev != want {
					t.Errorf("revision after a write at %d: got %d, %v", want, rev, err)
				}
			})
		}
		wg.Wait()
	}
}

func revisionsGrow(t *testing.T, s store.Store) {
	first := mustPut(t, s, "/a", "1")
	both := mustTxn(t, s, store.Txn{Ops: []store.Op{put("/b", "1"), put("/c", "1"), {Key: "/a"}}})
	if both != first+1 {
		t.Errorf("second transaction: got revision %d, want %d", both, first+1)
	}
	p := mustList(t, s, "/", store.ListOptions{})
	if got, want := text(p.KVs), fmt.Sprintf("/b=1@%d /c=1@%d ", both, both); got != want || p.Rev != both {
		t.Errorf("got %q at %d, want %q at %d", got, p.Rev, want, both)
	}
	if rev := mustDelete(t, s, "/nothing"); rev != both {
		t.Errorf("deleting what is not there: got revision %d, want the present one, %d", rev, both)
	}
	if rev := mustTxn(t, s, store.Txn{}); rev != both {
		t.Errorf("empty transaction: got revision %d, want the present one, %d", rev, both)
	}
}

func listAtRevision(t *testing.T, s store.Store) {
	r1 := mustPut(t, s, "/p/a", "1")
	r2 := mustPut(t, s, "/p/b", "1")
	r3 := mustPut(t, s, "/p/a", "2")
	r4 := mustDelete(t, s, "/p/b")
	mustPut(t, s, "/q/a", "1")
	for _, c := range []struct {
		rev  int64
		want string
	}{
		{r1, fmt.Sprintf("/p/a=1@%d ", r1)},
		{r2, fmt.Sprintf("/p/a=1@%d /p/b=1@%d ", r1, r2)},
		{r3, fmt.Sprintf("/p/a=2@%d /p/b=1@%d ", r3, r2)},
		{r4, fmt.Sprintf("/p/a=2@%d ", r3)},
	} {
		p := mustList(t, s, "/p/", store.ListOptions{Rev: c.rev})
		if got := text(p.KVs); got != c.want || p.Rev != c.rev {
			t.Errorf("List at %d: got %q at %d, want %q", c.rev, got, p.Rev, c.want)
		}
	}
}

// randomHistory makes random transactions and checks each state against a map.
func randomHistory(t *testing.T, s store.Store) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	model := map[string]store.KV{}
	states := map[int64]string{}
	start := mustPut(t, s, "/h/first", "x")
	model["/h/first"] = store.KV{Key: "/h/first", Value: []byte("x"), Rev: start}
	var last int64
	for i := range 200 {
		var ops []store.Op
		for _, k := range rnd.Perm(12)[:1+rnd.IntN(4)] {
			op := put(fmt.Sprintf("/h/%02d", k), fmt.Sprint(i))
			if rnd.IntN(3) == 0 {
				op.Value = nil
			}
			ops = append(ops, op)
		}
		last = mustTxn(t, s, store.Txn{Ops: ops})
		for _, op := range ops {
			if op.Value == nil {
				delete(model, op.Key)
			} else {
				model[op.Key] = store.KV{Key: op.Key, Value: op.Value, Rev: last}
			}
		}
		states[last] = modelText(model)
	}
	for rev, want := range states {
		if got := text(mustList(t, s, "/h/", store.ListOptions{Rev: rev}).KVs); got != want {
			t.Errorf("state at %d: got %s, want %s", rev, got, want)
		}
	}
	f := watchUntil(t, s, "/h/", start, upTo(last))
	replay := map[string]store.KV{"/h/first": model["/h/first"]}
	for i, c := range f.changes {
		if _, ok := replay[c.Key]; !ok && c.Value == nil {
			t.Errorf("change at %d: deletes %s, which was not there", c.Rev, c.Key)
		}
		if c.Value == nil {
			delete(replay, c.Key)
		} else {
			replay[c.Key] = c.KV
		}
		if i == len(f.changes)-1 || f.changes[i+1].Rev != c.Rev {
			if got := modelText(replay); got != states[c.Rev] {
				t.Errorf("feed replayed up to %d: got %s, want %s", c.Rev, got, states[c.Rev])
			}
		}
	}
}

func modelText(model map[string]store.KV) string {
	var kvs []store.KV
	for _, key := range slices.Sorted(maps.Keys(model)) {
		kvs = append(kvs, model[key])
	}
	return text(kvs)
}

func paging(t *testing.T, s store.Store) {
	var ops []store.Op
	for i := range 25 {
		ops = append(ops, put(fmt.Sprintf("/p/%02d", i), "old"))
	}
	ops = append(ops, put("/o/z", "x"), put("/q/a", "x"))
	rev := mustTxn(t, s, store.Txn{Ops: ops})
	var keys []string
	from := ""
	for n := 0; ; n++ {
		p := mustList(t, s, "/p/", store.ListOptions{From: from, Limit: 10, Rev: rev})
		for _, kv := range p.KVs {
			keys = append(keys, kv.Key)
			if string(kv.Value) != "old" {
				t.Errorf("page %d: %s has value %q of a later revision", n, kv.Key, kv.Value)
			}
		}
		if want := int64(max(0, 25-10*(n+1))); p.More != want {
			t.Errorf("page %d: got %d more, want %d", n, p.More, want)
		}
		if p.More == 0 {
			break
		}
		from = p.KVs[len(p.KVs)-1].Key + "\x00"
		mustPut(t, s, fmt.Sprintf("/p/%02d", 24-n), "new")
		mustPut(t, s, fmt.Sprintf("/p/x%02d", n), "new")
	}
	if got := strings.Join(keys, " "); len(keys) != 25 || !slices.IsSorted(keys) {
		t.Errorf("pages: got keys %s, want /p/00 to /p/24 in order", got)
	}
	if p := mustList(t, s, "/p/", store.ListOptions{From: "/a"}); len(p.KVs) != 27 {
		t.Errorf("list from a key before the prefix: got %d keys, want 27", len(p.KVs))
	}
}

func future(t *testing.T, s store.Store) {
	rev := mustPut(t, s, "/a", "1")
	if _, err := s.List(within(t), "/", store.ListOptions{Rev: rev + 1000}); !errors.Is(err, store.ErrFuture) {
		t.Errorf("List at a future revision: got %v, want ErrFuture", err)
	}
	if err := s.Compact(within(t), rev+1000); !errors.Is(err, store.ErrFuture) {
		t.Errorf("Compact at a future revision: got %v, want ErrFuture", err)
	}
}

func compaction(t *testing.T, s store.Store) {
	r1 := mustPut(t, s, "/a", "1")
	mustPut(t, s, "/b", "1")
	mustPut(t, s, "/a", "2")
	mustDelete(t, s, "/b")
	point := mustPut(t, s, "/c", "1")
	last := mustPut(t, s, "/a", "3")
	if err := s.Compact(within(t), point); err != nil {
		t.Fatalf("Compact(%d): %v", point, err)
	}
	if err := s.Compact(within(t), r1); err != nil {
		t.Errorf("Compact below the compaction point: got %v, want nothing", err)
	}
	if _, err := s.List(within(t), "/", store.ListOptions{Rev: point - 1}); !errors.Is(err, store.ErrCompacted) {
		t.Errorf("List below the compaction point: got %v, want ErrCompacted", err)
	}
	err := s.Watch(within(t), "/", r1, func([]store.Change, int64) error { return errors.New("was called") })
	if !errors.Is(err, store.ErrCompacted) {
		t.Errorf("Watch from below the compaction point: got %v, want ErrCompacted", err)
	}
	p := mustList(t, s, "/", store.ListOptions{Rev: point})
	if got := strings.Count(text(p.KVs), "="); got != 2 || string(p.KVs[0].Value) != "2" {
		t.Errorf("state at the compaction point: got %s, want /a=2 and /c=1", text(p.KVs))
	}
	f := watchUntil(t, s, "/", point, upTo(last))
	if len(f.changes) != 1 || string(f.changes[0].Value) != "3" {
		t.Errorf("feed after the compaction point: got %v, want one change, to 3", f.changes)
	}
}
