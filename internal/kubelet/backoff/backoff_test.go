package backoff

import (
	"slices"
	"testing"
	"time"
)

func TestWaitsDoubleUpToTheirMost(t *testing.T) {
	for _, tc := range []struct {
		name string
		b    Backoff
		want []int // seconds, after 0, 1, 2, ... failures in a row
	}{
		{"restart", Restart, []int{0, 10, 20, 40, 80, 160, 300, 300}},
		{"pull", Pull, []int{0, 10, 20, 40, 80, 160, 300, 300}},
		{"start", Start, []int{0, 1, 2, 4, 8, 16, 32, 64, 120, 120}},
		{"refresh", Refresh, []int{0, 60, 60, 60}},
		{"call", Call, []int{0, 1, 2, 4, 8, 16, 32, 60, 60}},
	} {
		var after, next []int
		var wait time.Duration
		for n := range tc.want {
			after, next = append(after, int(tc.b.After(n)/time.Second)), append(next, int(wait/time.Second))
			wait = tc.b.Next(wait)
		}
		if !slices.Equal(after, tc.want) || !slices.Equal(next, tc.want) {
			t.Errorf("%s: got %v by number, %v one after another, want %v", tc.name, after, next, tc.want)
		}
		if got := tc.b.After(1 << 40); got != tc.b.Most {
			t.Errorf("%s: after countless failures: got %v, want %v", tc.name, got, tc.b.Most)
		}
	}
}
