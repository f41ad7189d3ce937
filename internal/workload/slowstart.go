package workload

import (
	"errors"
	"sync"

	"github.com/kemudi/kemudi/internal/task"
)

// width is how many calls are made side by side: enough for the store to put
// their writes together, few enough not to crowd out other callers.
const width = 16

// SlowStartWide calls do with 0 to n-1 in growing batches (1, 2, 4 ...), the calls
// of a batch side by side, and stops at the first batch with an error: a request
// that cannot succeed is not made a thousand times. It returns how many calls
// succeeded and the first error.
func SlowStartWide(n int, do func(i int) error) (done int, err error) {
	for batch := 1; done < n && err == nil; batch *= 2 {
		var made int
		made, err = calls{from: done, to: done + min(batch, n-done), do: do}.run(width)
		done += made
	}
	return done, err
}

// SideBySide calls do with 0 to n-1, a few at a time, however it goes. It returns
// how many calls succeeded and the errors of the others.
func SideBySide(n int, do func(i int) error) (int, error) {
	errs := make([]error, n)
	// The calls themselves do not fail, so all of them are made.
	_, _ = calls{to: n, do: func(i int) error {
		errs[i] = task.Contain(func() error { return do(i) })
		return nil
	}}.run(width)
	done := n
	for _, err := range errs {
		if err != nil {
			done--
		}
	}
	return done, errors.Join(errs...)
}

// calls are made with the numbers from one to below another.
type calls struct {
	from, to int
	do       func(i int) error
}

// run makes the calls, so many at a time, and begins none after the first error.
// It returns how many succeeded, and that error.
func (c calls) run(width int) (done int, err error) {
	var mu sync.Mutex
	next := c.from
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		i = next
		next++
		return i, err == nil && i < c.to
	}
	work := func() {
		for i, ok := take(); ok; i, ok = take() {
			failed := task.Contain(func() error { return c.do(i) })
			mu.Lock()
			if failed == nil {
				done++
			} else if err == nil {
				err = failed
			}
			mu.Unlock()
		}
	}
	if width = min(width, c.to-c.from); width <= 1 {
		work()
		return done, err
	}
	var wg sync.WaitGroup
	for range width {
		wg.Go(work)
	}
	wg.Wait()
	return done, err
}
