package mem

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/storetest"
)

func TestStorePassesTheSuite(t *testing.T) {
	storetest.Run(t, func(*testing.T) store.Store { return New(Options{}) })
}

func TestKeysExpireOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{})
		start := time.Now()
		for i := range 3 {
			op := store.Op{Key: fmt.Sprintf("/%d", i), Value: []byte("x"), TTL: time.Duration(3-i) * time.Hour}
			if _, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{op}}); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		enough := errors.New("enough")
		err := s.Watch(t.Context(), "/", 4, func(changes []store.Change, _ int64) error {
			for _, c := range changes {
				got = append(got, fmt.Sprintf("%s after %s", c.Key, time.Since(start)))
			}
			if len(got) == 3 {
				return enough
			}
			return nil
		})
		if want := "[/2 after 1h0m0s /1 after 2h0m0s /0 after 3h0m0s]"; !errors.Is(err, enough) || fmt.Sprint(got) != want {
			t.Errorf("got %v, %v; want %s", got, err, want)
		}
	})
}

func TestOldHistoryIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{History: time.Minute})
		var revs []int64
		for i := range 3600 {
			r, err := s.Txn(t.Context(), store.Txn{Ops: []store.Op{
				{Key: "/renewed", Value: fmt.Append(nil, i)},
				{Key: fmt.Sprintf("/short/%d", i), Value: []byte("x"), TTL: time.Second / 2},
			}})
			if err != nil {
				t.Fatal(err)
			}
			revs = append(revs, r.Rev)
			time.Sleep(time.Second)
		}
		if _, err := s.List(t.Context(), "/", store.ListOptions{Rev: revs[3600-50]}); err != nil {
			t.Errorf("list 50 s back: %v", err)
		}
		if _, err := s.List(t.Context(), "/", store.ListOptions{Rev: revs[3600-90]}); !errors.Is(err, store.ErrCompacted) {
			t.Errorf("list 90 s back: got %v, want ErrCompacted", err)
		}
		if got := len(s.mu.log); got > 300 {
			t.Errorf("changes kept: got %d, want at most those of 70 s", got)
		}
		if got := s.mu.keys.Len(); got > 100 {
			t.Errorf("keys kept: got %d, want at most those of 70 s", got)
		}
	})
}

func TestAnIdleFeedEndsWithItsContextOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		err := New(Options{}).Watch(ctx, "/", 1, func([]store.Change, int64) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
	})
}

func BenchmarkTxn(b *testing.B) {
	s := New(Options{})
	value := make([]byte, 1000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Txn(b.Context(), store.Txn{Ops: []store.Op{{Key: fmt.Sprintf("/%d", i%10000), Value: value}}}); err != nil {
			b.Fatal(err)
		}
	}
}
