package workload

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestCreationStopsWhereItCannotSucceed(t *testing.T) {
	full := errors.New("quota is used up")
	for _, tc := range []struct {
		name        string
		n, fails    int // calls from fails on fail; 0: none
		calls, done int
	}{
		{"all succeed", 10, 0, 10, 10},
		{"the first fails", 1000, 1, 1, 0},
		{"the second batch fails in part", 1000, 3, 3, 2},
		{"nothing to do", 0, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var calls atomic.Int64
			done, err := SlowStartWide(tc.n, func(i int) error {
				calls.Add(1)
				if tc.fails > 0 && i+1 >= tc.fails {
					return full
				}
				return nil
			})
			if int(calls.Load()) != tc.calls || done != tc.done || (err != nil) != (tc.fails > 0) {
				t.Errorf("got %d calls, %d done, %v; want %d, %d", calls.Load(), done, err, tc.calls, tc.done)
			}
		})
	}
}

func TestCallsAreMadeSideBySideButNotAllAtOnce(t *testing.T) {
	const n = 100
	var now, most atomic.Int64
	enough := make(chan struct{})
	tell := sync.OnceFunc(func() { close(enough) })
	done, err := SideBySide(n, func(i int) error {
		defer now.Add(-1)
		at := now.Add(1)
		if at == width {
			tell() // nobody gets on before so many are under way
		}
		<-enough
		for was := most.Load(); at > was && !most.CompareAndSwap(was, at); was = most.Load() {
		}
		switch i % 10 {
		case 3:
			return errors.New("no")
		case 7:
			panic("broken")
		}
		return nil
	})
	if most.Load() != width {
		t.Errorf("got %d at once, want %d", most.Load(), width)
	}
	if done != 80 || strings.Count(err.Error(), "no\n") != 10 || strings.Count(err.Error(), "panic: broken") != 10 {
		t.Errorf("got %d done, and %v; want 80, 10 errors and 10 panics", done, err)
	}
}

func TestCallsSideBySide(t *testing.T) {
	full := errors.New("quota is used up")
	var mu sync.Mutex
	seen := map[int]int{}
	call := func(fails func(i int) bool) func(i int) error {
		clear(seen)
		return func(i int) error {
			mu.Lock()
			defer mu.Unlock()
			seen[i]++
			if fails(i) {
				return full
			}
			return nil
		}
	}
	if done, err := SlowStartWide(500, call(func(int) bool { return false })); done != 500 || err != nil || len(seen) != 500 || seen[499] != 1 {
		t.Errorf("got %d done of %d calls, %v; want 500, each once", done, len(seen), err)
	}
	// The batches are 1, 2, 4, 8 and 16 calls; those of a batch that had begun when one failed may succeed.
	done, err := SlowStartWide(500, call(func(i int) bool { return i >= 20 }))
	if !errors.Is(err, full) || done < 15 || done > 20 || len(seen) > 31 {
		t.Errorf("got %d done of %d calls, %v; want no batch after the one that failed", done, len(seen), err)
	}
	done, err = SideBySide(100, call(func(i int) bool { return i%2 == 0 }))
	if done != 50 || len(seen) != 100 || !errors.Is(err, full) {
		t.Errorf("got %d done of %d calls, %v; want all calls, and half of them done", done, len(seen), err)
	}
	if done, err := SideBySide(0, nil); done != 0 || err != nil {
		t.Errorf("nothing to do: got %d, %v", done, err)
	}
}
