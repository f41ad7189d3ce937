package memory

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsAreRefusedBeforeTheMemoryIsUsedUp(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		used := int64(40 * mib)
		b := Of(func() int64 { return 100 * mib }, func() int64 { return used })
		take := func(n int64, want bool) func() {
			t.Helper()
			give, ok := b.Take(n)
			if ok != want {
				t.Fatalf("take %d MiB with %d MiB in use: got %v, want %v", n/mib, used/mib, ok, want)
			}
			return give
		}
		first := take(30*mib, true)
		second := take(10*mib, true)
		take(Large, false)
		small := take(Large/2, true) // what is small gets through
		first()
		take(29*mib, true)
		take(Large, false)
		second()
		small()
		used = 94 * mib
		take(Large/2, true) // what was measured is not measured each time
		time.Sleep(2 * fresh)
		take(Large, false)
		take(Large/2, false)
		take(0, true)
	})
}

func TestWithoutALimitNothingIsRefused(t *testing.T) {
	b := Of(func() int64 { return math.MaxInt64 }, inUse)
	give, ok := b.Take(1 << 50)
	if !ok {
		t.Fatal("refused")
	}
	give()
}

func TestWhatIsInUseFollowsTheHeap(t *testing.T) {
	if used := inUse(); used < 100<<10 || used > 1<<32 {
		t.Errorf("got %d bytes in use", used)
	}
}
