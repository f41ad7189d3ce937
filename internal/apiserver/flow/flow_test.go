package flow

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestFlowsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Running: 1, Waiting: 3, Wait: time.Minute})
		first := Flow{Name: "first"}
		if !l.Acquire(t.Context(), first) {
			t.Fatal("no place in an idle limiter")
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		ask := func(f Flow) {
			wg.Go(func() {
				ok := l.Acquire(t.Context(), f)
				mu.Lock()
				order = append(order, fmt.Sprint(f.Name, ok))
				mu.Unlock()
				if ok {
					l.Release(f)
				}
			})
			synctest.Wait()
		}
		for range 4 {
			ask(Flow{Name: "greedy"}) // the fourth is refused at once
		}
		ask(Flow{Name: "modest"})
		ask(Flow{Name: "node", System: true})
		l.Release(first)
		wg.Wait()
		if got := fmt.Sprint(order); got != "[greedyfalse nodetrue greedytrue modesttrue greedytrue greedytrue]" {
			t.Errorf("got %s", got)
		}
	})
}

// TestNoFlowTakesAllPlaces asks for places in the order of the steps; each is a
// flow (the system's in capitals) and how many it asks for at once.
func TestNoFlowTakesAllPlaces(t *testing.T) {
	for _, c := range []struct {
		name          string
		running, kept int
		asks          string
		want          string
	}{
		{"alone, it gets half", 100, 0, "a100", "a50"},
		{"two may have a third each", 99, 0, "a33 b33 c1", "a33 b33 c1"},
		{"who comes later finds a place", 100, 0, "a100 b100 c100 d100 e100 f100", "a50 b25 c13 d6 e3 f2"},
		{"a single place is had by one", 1, 0, "a1 b1", "a1 b0"},
		{"places are kept for the system", 100, 40, "a100 b100 c100 d100 e100 f100 g100 h100 NODE20", "a30 b15 c8 d4 e2 f1 g0 h0 NODE20"},
		{"the system's places are no more than all", 10, 4, "a6 b6 c6 N10 M10 a1", "a3 b2 c1 N2 M1 a0"},
		{"the system takes its own places first", 10, 4, "N4 a6 b6 c6", "N4 a3 b2 c1"},
		{"nobody of the system holds up the others of it", 100, 40, "NODE100 OTHER100 THIRD1", "NODE50 OTHER25 THIRD1"},
	} {
		l := New(Limits{Running: c.running, Kept: c.kept})
		var got []string
		for ask := range strings.FieldsSeq(c.asks) {
			at := strings.IndexAny(ask, "0123456789")
			f := Flow{Name: ask[:at], System: ask[0] < 'a'}
			var n, ok int
			if _, err := fmt.Sscan(ask[at:], &n); err != nil {
				t.Fatal(err)
			}
			for range n {
				if l.Acquire(t.Context(), f) {
					ok++
				}
			}
			got = append(got, fmt.Sprint(f.Name, ok))
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", c.name, c.asks, got, c.want)
		}
	}
}

// TestPlacesAreHandedOnUntilShared: a flow that has more than its share gets none
// until it has given some back, and then the others are served.
func TestPlacesAreHandedOnUntilShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Running: 12, Waiting: 100, Wait: time.Hour})
		a, b, c := Flow{Name: "a"}, Flow{Name: "b"}, Flow{Name: "c"}
		running := map[string]int{}
		var mu sync.Mutex
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for _, f := range []Flow{a, b, c} {
			for range 30 {
				wg.Go(func() {
					if l.Acquire(ctx, f) {
						mu.Lock()
						running[f.Name]++
						mu.Unlock()
					}
				})
			}
			synctest.Wait()
		}
		for _, want := range []string{
			"map[a:6 b:3 c:2]", // one is free, for whoever comes
			"map[a:5 b:3 c:2]", // each of them holds as many as are free, or more
			"map[a:4 b:3 c:3]",
			"map[a:3 b:3 c:3]", // all alike
			"map[a:3 b:3 c:3]",
		} {
			if got := fmt.Sprint(running); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			running["a"]--
			l.Release(a)
			synctest.Wait()
		}
		cancel()
		wg.Wait()
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Running: 1, Waiting: 5, Wait: 10 * time.Second})
		a, b := Flow{Name: "a"}, Flow{Name: "b"}
		l.Acquire(t.Context(), a)
		start := time.Now()
		if ok := l.Acquire(t.Context(), b); ok || time.Since(start) != 10*time.Second {
			t.Errorf("got %v after %s, want a refusal after 10 s", ok, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if ok := l.Acquire(ctx, b); ok || time.Since(start) != 11*time.Second {
			t.Errorf("got %v after %s, want a refusal when the context ends", ok, time.Since(start))
		}
		l.Release(a)
		if !l.Acquire(t.Context(), Flow{Name: "c"}) {
			t.Error("a free place was not given")
		}
	})
}
