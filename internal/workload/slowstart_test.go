package workload

import (
	"errors"
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
		{"the second batch fails", 1000, 3, 3, 2},
		{"nothing to do", 0, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			calls := 0
			done, err := SlowStart(tc.n, func() error {
				calls++
				if tc.fails > 0 && calls >= tc.fails {
					return full
				}
				return nil
			})
			if calls != tc.calls || done != tc.done || (err != nil) != (tc.fails > 0) {
				t.Errorf("got %d calls, %d done, %v; want %d, %d", calls, done, err, tc.calls, tc.done)
			}
		})
	}
}
