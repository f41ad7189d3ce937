package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

func feedOrder(t *testing.T, s store.Store) {
	start := mustPut(t, s, "/f/0", "0")
	var last int64
	want := ""
	for i := range 50 {
		ops := []store.Op{put("/f/a", fmt.Sprint(i)), put("/f/b", fmt.Sprint(i)), put("/f/c", fmt.Sprint(i)), put("/g", "x")}
		last = mustTxn(t, s, store.Txn{Ops: ops})
		for _, op := range ops[:3] {
			want += fmt.Sprintf("%s=%d@%d ", op.Key, i, last)
		}
	}
	perRev := map[int64]int{}
	enough := errors.New("enough")
	got := ""
	err := s.Watch(within(t), "/f/", start, func(changes []store.Change, progress int64) error {
		for _, c := range changes {
			got += text([]store.KV{c.KV})
			perRev[c.Rev]++
		}
		for rev, n := range perRev {
			if n != 3 {
				t.Errorf("revision %d: got %d changes in the batch, want 3", rev, n)
			}
		}
		clear(perRev)
		if progress >= last {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || got != want {
		t.Errorf("feed ended with %v: got %s, want %s", err, got, want)
	}
}

func feedResume(t *testing.T, s store.Store) {
	after := mustPut(t, s, "/f/0", "0")
	var last int64
	for i := range 20 {
		last = mustPut(t, s, fmt.Sprintf("/f/%d", i%3), fmt.Sprint(i))
	}
	var seen []int64
	for after < last {
		f := watchUntil(t, s, "/f/", after, func(f *feed) bool { return f.progress > after })
		for _, c := range f.changes {
			seen = append(seen, c.Rev)
		}
		after = f.progress
	}
	if len(seen) != 20 {
		t.Errorf("got changes at %v, want 20", seen)
	}
	next := mustPut(t, s, "/f/0", "later")
	if f := watchUntil(t, s, "/f/", last, upTo(next)); len(f.changes) != 1 {
		t.Errorf("resumed at the newest revision: got %d changes, want 1", len(f.changes))
	}
}

func feedDeletes(t *testing.T, s store.Store) {
	start := mustPut(t, s, "/other", "x")
	mustPut(t, s, "/f/a", "1")
	mustPut(t, s, "/f/a", "")
	mustDelete(t, s, "/f/a")
	last := mustPut(t, s, "/f/a", "3")
	got := ""
	for _, c := range watchUntil(t, s, "/f/", start, upTo(last)).changes {
		if c.Value == nil {
			got += "deleted "
		} else {
			got += fmt.Sprintf("%q ", c.Value)
		}
	}
	if want := `"1" "" deleted "3" `; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func feedProgress(t *testing.T, s store.Store) {
	start := mustPut(t, s, "/f/a", "1")
	elsewhere := mustPut(t, s, "/other", "1")
	if f := watchUntil(t, s, "/f/", start, upTo(elsewhere)); len(f.changes) != 0 {
		t.Errorf("got changes %v, want none", f.changes)
	}
	written := make(chan int64, 1)
	first := true
	enough := errors.New("enough")
	err := s.Watch(within(t), "/f/", start, func(changes []store.Change, progress int64) error {
		if first { // the feed is idle from here on
			first = false
			written <- mustPut(t, s, "/other", "2")
		}
		select {
		case rev := <-written:
			if progress >= rev {
				return enough
			}
			written <- rev
		default:
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("progress of an idle feed: ended with %v, want to see the write elsewhere", err)
	}
}

func feedProgressUnderLoad(t *testing.T, s store.Store) {
	start := mustPut(t, s, "/f/a", "1")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				mustPut(t, s, "/other", "x")
			case <-done:
				return
			}
		}
	})
	watchUntil(t, s, "/f/", start, upTo(start+20))
	close(done)
	wg.Wait()
}

func feedEnds(t *testing.T, s store.Store) {
	start := mustPut(t, s, "/f/a", "1")
	last := mustPut(t, s, "/f/a", "2")
	mine := errors.New("mine")
	if err := s.Watch(within(t), "/f/", start, func([]store.Change, int64) error { return mine }); !errors.Is(err, mine) {
		t.Errorf("got %v, want the function's error", err)
	}
	why := errors.New("no longer wanted")
	ctx, cancel := context.WithCancelCause(within(t))
	err := s.Watch(ctx, "/f/", start, func(_ []store.Change, progress int64) error {
		if progress >= last {
			cancel(why)
		}
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("got %v, want the cause of the context's end", err)
	}
}
