package edge

import (
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// percentNow is the collector's percentage.
func percentNow() int {
	now := debug.SetGCPercent(100)
	debug.SetGCPercent(now)
	return now
}

func TestGarbageHasRoomWhileThereAreManyRequests(t *testing.T) {
	const usual = 77
	defer debug.SetGCPercent(debug.SetGCPercent(usual))
	ask := func(p *pace, n int) {
		for range n {
			p.request()
		}
	}
	more := func(when string, want bool) {
		t.Helper()
		if got := percentNow(); got >= 100 != want || !want && got != usual {
			t.Errorf("%s: got %d %%, want more than the usual %d: %v", when, got, usual, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var p pace
		ask(&p, paceMany-1)
		time.Sleep(2 * paceLook)
		more("after a few", false)
		ask(&p, 1)
		more("after many", true)
		ask(&p, paceMany)
		time.Sleep(paceLook + time.Millisecond)
		more("when there were many more", true)
		ask(&p, paceMany-1)
		time.Sleep(paceLook)
		more("when there were few", false)
		ask(&p, paceMany)
		more("when there are many again", true)
		p.close()
		more("at the end", false)
		ask(&p, paceMany)
		more("after the end", false)
	})
}
