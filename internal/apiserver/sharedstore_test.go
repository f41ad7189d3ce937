package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/internal/store"
)

// lameStore is a store that may not answer, and counts what it is asked.
type lameStore struct {
	store.Store
	fails     atomic.Pointer[error]
	revs, got atomic.Int64
}

func (s *lameStore) fail(err error) {
	if err == nil {
		s.fails.Store(nil)
		return
	}
	s.fails.Store(&err)
}

func (s *lameStore) refuses() error {
	if err := s.fails.Load(); err != nil {
		return fmt.Errorf("commit transaction: %w", *err)
	}
	return nil
}

func (s *lameStore) Rev(ctx context.Context) (int64, error) {
	s.revs.Add(1)
	if err := s.refuses(); err != nil {
		return 0, err
	}
	return s.Store.Rev(ctx)
}

func (s *lameStore) Get(ctx context.Context, key string) (store.KV, int64, error) {
	s.got.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *lameStore) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	if err := s.refuses(); err != nil {
		return store.TxnResult{}, err
	}
	return s.Store.Txn(ctx, t)
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestReadsOfASharedStoreShowWhatOthersWrote(t *testing.T) {
	st := &lameStore{Store: newStore(t)}
	shared := func(o *Options) { o.Store, o.Shared = st, true }
	one, other := newFixture(t, shared), newFixture(t, shared)
	one.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
	revs, got := st.revs.Load(), st.got.Load()
	const n = 20
	for i := range n {
		name := fmt.Sprintf("m%d", i)
		one.must(201, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		other.must(200, "GET", configMaps+"/"+name, "")
		if list := other.must(200, "GET", configMaps, ""); !strings.Contains(list, fmt.Sprintf("%q", name)) {
			t.Errorf("list after the creation of %s: it is missing", name)
		}
		old := other.must(200, "GET", configMaps+"?resourceVersion=0", "") // what is at hand, whatever it is
		if len(old) == 0 {
			t.Error("list of what is at hand: got nothing")
		}
	}
	if got := st.got.Load() - got; got != 0 {
		t.Errorf("%d keys were read, want none: the caches have all objects", got)
	}
	if asked := st.revs.Load() - revs; asked < 2*n {
		t.Errorf("the revision was asked for %d times, want at least once for each of %d reads of the newest state", asked, 2*n)
	}
}

func TestAStoreThatReachesNoMajorityIsToldToClients(t *testing.T) {
	st := &lameStore{Store: newStore(t)}
	f := newFixture(t, func(o *Options) { o.Store, o.Shared = st, true })
	f.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"default"}}`)
	f.must(201, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	f.must(200, "GET", configMaps+"/a", "") // what is at hand has it
	for name, tc := range map[string]struct {
		err    error
		code   int
		reason string
		again  string // the header Retry-After
	}{
		"no majority":        {store.ErrNoMajority, http.StatusServiceUnavailable, "ServiceUnavailable", "1"},
		"nobody knows":       {store.ErrUnknown, http.StatusGatewayTimeout, "Timeout", ""},
		"the disk is full":   {store.ErrDisk, http.StatusInsufficientStorage, "InsufficientStorage", ""},
		"it answers as ever": {nil, http.StatusCreated, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			st.fail(tc.err)
			defer st.fail(nil)
			w := f.ask("POST", configMaps, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"}}`, "Content-Type: application/json")
			if w.Code != tc.code || w.Header().Get("Retry-After") != tc.again || !strings.Contains(w.Body.String(), fmt.Sprintf(`"reason":%q`, tc.reason)) && tc.reason != "" {
				t.Errorf("write: got %d, Retry-After %q, %s; want %d, %q, %s", w.Code, w.Header().Get("Retry-After"), w.Body, tc.code, tc.again, tc.reason)
			}
			if tc.err != nil && !strings.Contains(w.Body.String(), tc.err.Error()) {
				t.Errorf("write: got %s, want the reason %q", w.Body, tc.err)
			}
			if tc.err == nil {
				return
			}
			if w := f.ask("GET", configMaps+"/a", ""); w.Code != tc.code {
				t.Errorf("read of the newest state: got %d %s, want %d", w.Code, w.Body, tc.code)
			}
			if w := f.ask("GET", configMaps+"/a?resourceVersion=0", ""); w.Code != http.StatusOK {
				t.Errorf("read of what is at hand: got %d %s, want 200", w.Code, w.Body)
			}
		})
	}
}
