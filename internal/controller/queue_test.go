package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/cache"
)

// opened returns a queue whose one worker is the test.
func opened() *queue {
	q := newQueue(nil)
	q.open(1, func() {})
	return q
}

// take is what a worker that begins now is given, or "" if none would begin.
func take(t *testing.T, q *queue) string {
	t.Helper()
	synctest.Wait()
	key, _ := q.take()
	return key
}

func TestKeyIsGivenToOneWorkerAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C1, C2
		q := opened()
		defer q.end()
		q.add(inFresh, "a")
		q.add(inFresh, "a")
		q.add(inFresh, "b")
		if got := take(t, q); got != "a" {
			t.Fatalf("got %q, want a", got)
		}
		q.add(inFresh, "a") // changed while it is worked on
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

func TestWorkersBeginForKeysThatFindNoneFreeAndEndWithTheKeys(t *testing.T) {
	q := newQueue(nil)
	defer q.end()
	q.add(inFresh, "early")
	begun := 0
	q.open(3, func() { begun++ })
	begins := func(want int, when string) {
		t.Helper()
		if begun != want {
			t.Fatalf("%s: got %d workers that have begun, want %d", when, begun, want)
		}
	}
	taken := func(want string) {
		t.Helper()
		if got, ok := q.take(); got != want || ok != (want != "") {
			t.Fatalf("got %q, %v, want %q", got, ok, want)
		}
	}
	begins(1, "a key that was there before")
	q.add(inFresh, "early")
	begins(1, "the same key again")
	taken("early")
	for _, key := range []string{"a", "b", "c"} {
		q.add(inFresh, key)
	}
	begins(3, "three keys beside the one that is worked on, by at most three")
	taken("a")
	taken("b")
	q.add(inFresh, "a")
	q.done("a", result{})
	begins(3, "a key that its own worker is about to take again")
	taken("c")
	q.done("b", result{})
	taken("a")
	q.done("early", result{})
	taken("") // one has ended
	q.add(inFresh, "d")
	begins(4, "a key while two work")
	taken("d")
	for _, key := range []string{"a", "c", "d"} {
		q.done(key, result{})
		taken("")
	}
	q.add(inFresh, "e")
	begins(5, "a key after all have ended")
	q.end()
	q.add(inFresh, "f")
	begins(5, "a key after the end")
	if q.mu.free != 2 || q.mu.eager != 1 {
		t.Errorf("got %d workers that may begin and %d that are about to take a key, want 2 and 1", q.mu.free, q.mu.eager)
	}
}

func TestKeysThatHaveChangedGoBeforeThoseThatAreOnlyThere(t *testing.T) {
	q := opened() // C11
	defer q.end()
	begin := func(where line, keys ...string) {
		for _, key := range keys {
			q.add(where, key)
		}
	}
	taken := func(want ...string) {
		t.Helper()
		var got []string
		for range want {
			key, _ := q.take()
			got = append(got, key)
			q.done(key, result{})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	begin(inFirst, "a", "b", "c", "d")
	begin(inFresh, "new", "c")
	begin(inFirst, "c", "new")
	taken("new", "c", "a", "b", "d")
	begin(inFirst, "a", "b", "c")
	begin(inFresh, "1", "2", "3", "4", "5", "6", "7", "8", "9")
	taken("1", "2", "3", "4", "a", "5", "6", "7", "8", "b", "9", "c") // it never is quiet, and they have their turn
	if key, ok := q.take(); ok {
		t.Fatalf("got %q once all have been taken", key)
	}
	if n := len(q.mu.keys); n != 0 {
		t.Errorf("got %d keys remembered, want none once all is done", n)
	}
}

func TestKeysThatComeBackBehindOthersLetTheseGoBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C11
		q := opened()
		defer q.end()
		for i, key := range []string{"a", "b"} {
			q.add(inFresh, key)
			if got := take(t, q); got != key {
				t.Fatalf("got %q, want %s", got, key)
			}
			next := After(time.Minute + time.Duration(i)*time.Second).Behind()
			q.done(key, result{after: next.after, behind: next.behind})
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, key := range []string{"new", "b"} {
			q.add(inFresh, key)
		}
		for _, want := range []string{"new", "b", "a", ""} {
			got := take(t, q)
			if got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			if got != "" {
				q.done(got, result{})
			}
		}
	})
}

func TestFailedKeyComesBackAfterGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := opened()
		defer q.end()
		q.add(inFresh, "a")
		var waits []time.Duration
		for range 8 {
			began := time.Now()
			for take(t, q) == "" {
				time.Sleep(time.Millisecond)
			}
			waits = append(waits, time.Since(began))
			q.done("a", result{failed: true})
		}
		ms := time.Millisecond
		want := []time.Duration{0, 5 * ms, 10 * ms, 20 * ms, 40 * ms, 80 * ms, 160 * ms, 320 * ms}
		if !slices.Equal(waits, want) {
			t.Errorf("got waits %v, want %v", waits, want)
		}
		q.add(inFresh, "a") // a change does not wait
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
		q := opened()
		defer q.end()
		q.add(inFresh, "a")
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
		q.add(inFresh, "a") // a change replaces the delay
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
		q := opened()
		defer q.end()
		q.add(inFresh, "a")
		q.add(inFresh, "b")
		take(t, q)
		q.done("a", result{wrote: map[*cache.Progress]int64{&feed: 7}})
		q.add(inFresh, "a")
		if got := take(t, q); got != "b" {
			t.Fatalf("got %q, want b", got)
		}
		q.done("b", result{wrote: map[*cache.Progress]int64{&feed: 5}}) // that is shown already
		q.add(inFresh, "b")
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
		q := opened()
		defer q.end()
		for _, r := range []result{{after: time.Second}, {failed: true}} {
			q.add(inFresh, "a")
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
		q := opened()
		q.add(inFresh, "a")
		q.add(inFresh, "b")
		take(t, q)
		q.done("a", result{after: time.Second, wrote: map[*cache.Progress]int64{&feed: 1}})
		q.end()
		q.add(inFresh, "c")
		feed.Advance(1)
		time.Sleep(time.Minute)
		if got := take(t, q); got != "" {
			t.Errorf("got %q of a queue that has ended", got)
		}
	})
}

func TestKeyThatCostsMuchRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // C10
		q := opened()
		defer q.end()
		for _, c := range []struct {
			took, cooldown time.Duration
		}{{500 * time.Microsecond, 0}, {10 * time.Millisecond, 190 * time.Millisecond}, {time.Minute, time.Second}} {
			q.add(inFresh, "a")
			if got := take(t, q); got != "a" {
				t.Fatalf("got %q, want a", got)
			}
			q.done("a", result{cooldown: Done.Costly(c.took).cooldown})
			began := time.Now()
			q.add(inFresh, "a")
			q.add(inFresh, "a")
			for take(t, q) == "" {
				time.Sleep(time.Millisecond)
			}
			if cooled := time.Since(began); cooled != c.cooldown {
				t.Errorf("a key that took %s cooled down for %s, want %s", c.took, cooled, c.cooldown)
			}
			q.done("a", result{})
			if got := take(t, q); got != "" {
				t.Errorf("got %q, want nothing: what changed while the key cooled down was looked at together", got)
			}
		}
	})
}

func TestRestEndsWithTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a timer outlives it
		q := opened()
		q.add(inFresh, "a")
		take(t, q)
		q.done("a", result{cooldown: time.Second})
		q.end()
	})
}
