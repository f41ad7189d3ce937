package obs

import (
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestOfARowOfFailuresPeopleAreToldAtGrowingIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r Row
		told := func(lasts time.Duration) (at []time.Duration) {
			for began := time.Now(); time.Since(began) < lasts; time.Sleep(5 * time.Second) {
				if r.Failed() == slog.LevelWarn {
					at = append(at, time.Since(began))
				}
			}
			return at
		}
		m := time.Minute
		if got, want := told(250*m), []time.Duration{0, m, 3 * m, 7 * m, 15 * m, 31 * m, 63 * m, 123 * m, 183 * m, 243 * m}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		r.Over()
		if got, want := told(2*m), []time.Duration{0, m}; !slices.Equal(got, want) {
			t.Errorf("the next row: got %v, want %v", got, want)
		}
	})
}
