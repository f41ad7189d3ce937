package fair

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestFlowsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Running: 1, Waiting: 3, Wait: time.Minute})
		release, ok := l.Acquire(t.Context(), "first")
		if !ok {
			t.Fatal("no place in an idle limiter")
		}
		var mu sync.Mutex
		var order []string
		var wg sync.WaitGroup
		ask := func(flow string) {
			wg.Go(func() {
				release, ok := l.Acquire(t.Context(), flow)
				mu.Lock()
				order = append(order, fmt.Sprint(flow, ok))
				mu.Unlock()
				if ok {
					release()
				}
			})
			synctest.Wait()
		}
		for range 4 {
			ask("greedy") // the fourth is refused at once
		}
		ask("modest")
		release()
		wg.Wait()
		if got := fmt.Sprint(order); got != "[greedyfalse greedytrue modesttrue greedytrue greedytrue]" {
			t.Errorf("got %s", got)
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Limits{Running: 1, Waiting: 5, Wait: 10 * time.Second})
		release, _ := l.Acquire(t.Context(), "a")
		start := time.Now()
		if _, ok := l.Acquire(t.Context(), "b"); ok || time.Since(start) != 10*time.Second {
			t.Errorf("got %v after %s, want a refusal after 10 s", ok, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := l.Acquire(ctx, "b"); ok || time.Since(start) != 11*time.Second {
			t.Errorf("got %v after %s, want a refusal when the context ends", ok, time.Since(start))
		}
		release()
		if release, ok := l.Acquire(t.Context(), "c"); !ok {
			t.Error("a free place was not given")
		} else {
			release()
		}
	})
}
