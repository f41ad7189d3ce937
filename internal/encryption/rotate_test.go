package encryption

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/mem"
	"github.com/kemudi/kemudi/internal/store/seal"
)

// cutOff is a store that ends with the process after so many writes.
type cutOff struct {
	store.Store
	mu struct {
		sync.Mutex
		left int
	}
}

var errKilled = errors.New("killed")

func (c *cutOff) Txn(ctx context.Context, t store.Txn) (store.TxnResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.left--; c.mu.left < 0 {
		return store.TxnResult{}, errKilled
	}
	return c.Store.Txn(ctx, t)
}

func TestRotationIsCutOffAndGoesOnAndLosesNoWrite(t *testing.T) {
	const objects = 600
	under := mem.New(mem.Options{})
	old := newBed(t, "- {resources: [secrets], providers: ["+byKey("aescbc", "a", keyA)+"]}")
	sealed := seal.Over(under, old.Rules())
	put := func(s store.Store, key, value string, ttl time.Duration) {
		t.Helper()
		if _, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value), TTL: ttl}}}); err != nil {
			t.Fatal(err)
		}
	}
	key := func(i int) string { return fmt.Sprintf("/registry/secrets/default/s%04d", i) }
	for i := range objects {
		put(sealed, key(i), fmt.Sprint("value ", i), 0)
	}
	put(under, "/registry/secrets/default/plain", "as it is", 0)
	put(under, "/registry/secrets/default/lost", "k8s:enc:aescbc:v1:lost:xxxxxxxxxxxxxxxx", 0)
	put(sealed, "/registry/secrets/default/short", "short", time.Second)

	b := newBed(t, "- {resources: [secrets], providers: ["+byKey("aesgcm", "b", keyB)+", "+byKey("aescbc", "a", keyA)+", {identity: {}}]}")
	now := seal.Over(under, b.Rules())
	// all goes through all objects, with as many writes as there are before it is killed.
	all := func(ctx context.Context, writes int) (sum Step) {
		c := &cutOff{Store: under}
		c.mu.left = writes
		r := Rotator{Store: c, Rules: b.Rules(), Defs: api.All}
		for from, more := "", true; more; {
			s, err := r.Step(ctx, "secrets", from)
			if err != nil {
				t.Error(err)
				return sum
			}
			sum.Rewritten, sum.Looked, sum.Failed = sum.Rewritten+s.Rewritten, sum.Looked+s.Looked, append(sum.Failed, s.Failed...)
			from, more = s.Next, s.Next != ""
		}
		return sum
	}
	if s := all(t.Context(), 100); s.Rewritten != 100 {
		t.Errorf("cut off after 100: rewrote %d", s.Rewritten)
	}
	// Two go on at once, while somebody writes.
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { all(t.Context(), objects) })
	}
	for i := 0; i < objects; i += 7 {
		put(now, key(i), fmt.Sprint("changed ", i), 0)
	}
	wg.Wait()
	s := all(t.Context(), objects)
	if s.Rewritten != 0 || len(s.Failed) != 1 || s.Failed[0].Key != "/registry/secrets/default/lost" || s.Failed[0].Error != "no matching key was found for the provided AES transformer" {
		t.Errorf("once more: %+v", s)
	}
	page, err := now.List(t.Context(), "/registry/secrets/", store.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, kv := range page.KVs {
		values[kv.Key] = string(kv.Value)
		if kv.Stale != (kv.Err != nil) {
			t.Errorf("%s is stale", kv.Key)
		}
	}
	for i := range objects {
		want := fmt.Sprint("value ", i)
		if i%7 == 0 {
			want = fmt.Sprint("changed ", i)
		}
		if got := values[key(i)]; got != want {
			t.Errorf("%s: got %q, want %q", key(i), got, want)
		}
	}
	states, err := (&Rotator{Store: under, Rules: b.Rules(), Defs: api.All}).Status(t.Context())
	if err != nil || len(states) != 1 {
		t.Fatal(states, err)
	}
	if s := states[0]; s.Resource != "secrets" || s.Writes != "k8s:enc:aesgcm:v1:b:" || s.Stale != 0 || s.Unreadable != 1 || s.Stored["k8s:enc:aesgcm:v1:b:"] != s.Objects-1 || s.Stored["k8s:enc:aescbc:v1:lost:"] != 1 {
		t.Errorf("status: %+v", s)
	}
	// What is rewritten lives no longer than before.
	gone := errors.New("gone")
	if err := under.Watch(t.Context(), "/registry/secrets/default/short", 1, func(changes []store.Change, _ int64) error {
		for _, c := range changes {
			if c.Value == nil {
				return gone
			}
		}
		return nil
	}); !errors.Is(err, gone) {
		t.Error(err)
	}
}
