package controller

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
)

// take pops a key, or returns "" if none is ready now.
func take(t *testing.T, q *queue) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	key, _ := q.pop(ctx)
	return key
}

func TestKeyIsGivenToOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C1, C2
		q := newQueue(nil)
		defer q.end()
		q.add("a")
		q.add("a")
		q.add("b")
		if got := take(t, q); got != "a" {
			t.Fatalf("got %q, want a", got)
		}
		q.add("a") // changed while it is worked on
		if got := take(t, q); got != "b" {
			t.Fatalf("got %q, want b: a is being worked on", got)
		}
		if got := take(t, q); got != "" {
			t.Fatalf("got %q while a and b are being worked on", got)
		}
		q.done("a", result{})
		if got := take(t, q); got != "a" {
			t.Fatalf("got %q, want a: it changed during its reconcile", got)
		}
		q.done("a", result{})
		q.done("b", result{})
		if got := take(t, q); got != "" {
			t.Errorf("got %q, want nothing: no key changed", got)
		}
	})
}

func TestFailedKeyComesBackAfterGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		defer q.end()
		q.add("a")
		var waits []time.Duration
		for range 8 {
			began := time.Now()
			if _, ok := q.pop(t.Context()); !ok {
				t.Fatal("the queue ended")
			}
			waits = append(waits, time.Since(began))
			q.done("a", result{failed: true})
		}
		ms := time.Millisecond
		want := []time.Duration{0, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms}
		if !slices.Equal(waits, want) {
			t.Errorf("got waits %v, want %v", waits, want)
		}
		q.add("a") // a change does not wait
		if got := take(t, q); got != "a" {
			t.Errorf("got %q, want a at once: it changed", got)
		}
		if got := backOff(30); got != lastRetry {
			t.Errorf("got %s after many errors, want %s", got, lastRetry)
		}
	})
}

func TestKeyIsLookedAtAgainWhenItAsksFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(nil)
		defer q.end()
		q.add("a")
		take(t, q)
		q.done("a", result{after: time.Minute})
		time.Sleep(59 * time.Second)
		if got := take(t, q); got != "" {
			t.Fatalf("got %q before its time", got)
		}
		time.Sleep(time.Second)
		if got := take(t, q); got != "a" {
			t.Fatalf("got %q, want a", got)
		}
		q.done("a", result{after: time.Minute})
		q.add("a") // a change replaces the delay
		take(t, q)
		q.done("a", result{})
		time.Sleep(time.Hour)
		if got := take(t, q); got != "" {
			t.Errorf("got %q, want nothing: the delay was replaced", got)
		}
		if n := len(q.mu.keys); n != 0 {
			t.Errorf("got %d keys remembered, want none once all is done", n)
		}
	})
}

func TestKeyThatWroteWaitsForItsFeedAndNoOtherDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C3
		var feed cache.Progress
		feed.Advance(5)
		q := newQueue(nil)
		defer q.end()
		q.add("a")
		q.add("b")
		take(t, q)
		q.done("a", result{wrote: map[*cache.Progress]int64{&feed: 7}})
		q.add("a")
		if got := take(t, q); got != "b" {
			t.Fatalf("got %q, want b", got)
		}
		q.done("b", result{wrote: map[*cache.Progress]int64{&feed: 5}}) // that is shown already
		q.add("b")
		if got := take(t, q); got != "b" {
			t.Fatalf("got %q, want b", got)
		}
		feed.Advance(6)
		if got := take(t, q); got != "" {
			t.Fatalf("got %q at revision 6, want nothing before 7", got)
		}
		feed.Advance(7)
		if got := take(t, q); got != "a" {
			t.Errorf("got %q at revision 7, want a", got)
		}
	})
}

func TestPlannedLookWaitsForTheFeedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C3
		var feed cache.Progress
		q := newQueue(nil)
		defer q.end()
		for _, r := range []result{{after: time.Second}, {failed: true}} {
			q.add("a")
			if got := take(t, q); got != "a" {
				t.Fatalf("got %q, want a", got)
			}
			r.wrote = map[*cache.Progress]int64{&feed: feed.Rev() + 1}
			q.done("a", r)
			time.Sleep(time.Minute)
			if got := take(t, q); got != "" {
				t.Fatalf("%+v: got %q before the feed showed the write", r, got)
			}
			feed.Advance(feed.Rev() + 1)
			if got := take(t, q); got != "a" {
				t.Fatalf("%+v: got %q, want a", r, got)
			}
			q.done("a", result{})
		}
	})
}

func TestQueueThatEndedTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var feed cache.Progress
		q := newQueue(nil)
		q.add("a")
		q.add("b")
		take(t, q)
		q.done("a", result{after: time.Second, wrote: map[*cache.Progress]int64{&feed: 1}})
		q.end()
		q.add("c")
		feed.Advance(1)
		time.Sleep(time.Minute)
		if got := take(t, q); got != "" {
			t.Errorf("got %q of a queue that has ended", got)
		}
	})
}
