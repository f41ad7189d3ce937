package budget

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRequestsAreRefusedBeforeTheMemoryIsUsedUp(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		used := int64(40 * mib)
		b := Of(func() int64 { return 100 * mib }, func() int64 { return used })
		flows := 0
		take := func(n int64, want bool) func() {
			t.Helper()
			flows++
			r := &Reservation{Budget: b, Flow: strconv.Itoa(flows)}
			if ok := r.Take(n); ok != want {
				t.Fatalf("take %d MiB with %d MiB in use: got %v, want %v", n/mib, used/mib, ok, want)
			}
			return r.Give
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
	r := Reservation{Budget: b}
	if !r.Take(1 << 50) {
		t.Fatal("refused")
	}
	r.Give()
}

// TestNoFlowTakesAllTheMemory lets flows take, each step in a request of its own:
// a flow (the system's in capitals) and so many MiB, in steps of one if there is a plus.
func TestNoFlowTakesAllTheMemory(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct{ name, asks, want string }{
		{"one large request may have it all", "a80", "a80"},
		{"but not more", "a81", "a0"},
		{"many of one flow have half, or what there is for the small", "a20 a20 a1 a0.9 b20 b1", "a20 a20 a0 a0.9 b20 b1"},
		{"a request that grows stays one", "a+80", "a+80"},
		{"and is large once it has grown", "a+90", "a+80"},
		{"the system has some for itself", "a40 b40 c1 SYSTEM2 SYSTEM2 SYSTEM2", "a40 b40 c0 SYSTEM2 SYSTEM2 SYSTEM0"},
		{"what is given back is there again", "a40 a20 -a a20 a20 a20", "a40 a0 -a a20 a20 a0"},
	} {
		b := Of(func() int64 { return 100 * mib }, func() int64 { return 0 })
		var got []string
		reservations := map[string][]*Reservation{}
		for ask := range strings.FieldsSeq(c.asks) {
			if flow, ok := strings.CutPrefix(ask, "-"); ok {
				for _, r := range reservations[flow] {
					r.Give()
				}
				got = append(got, ask)
				continue
			}
			at := strings.IndexAny(ask, "+0123456789")
			size, steps := strings.CutPrefix(ask[at:], "+")
			n, err := strconv.ParseFloat(size, 64)
			if err != nil {
				t.Fatal(err)
			}
			r := &Reservation{Budget: b, Flow: ask[:at], System: ask[0] < 'a'}
			reservations[r.Flow] = append(reservations[r.Flow], r)
			if steps {
				for range int(n) {
					r.Take(mib)
				}
				got = append(got, fmt.Sprintf("%s+%d", r.Flow, r.held/mib))
				continue
			}
			if !r.Take(int64(n * mib)) {
				size = "0"
			}
			got = append(got, r.Flow+size)
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s: %s: got %s, want %s", c.name, c.asks, got, c.want)
		}
		for _, list := range reservations {
			for _, r := range list {
				r.Give()
			}
		}
		if b.mu.given != 0 || len(b.mu.flows) != 0 {
			t.Errorf("%s: %d bytes are still given out, to %v", c.name, b.mu.given, b.mu.flows)
		}
	}
}

func TestWhatIsInUseFollowsTheHeap(t *testing.T) {
	if used := inUse(); used < 100<<10 || used > 1<<32 {
		t.Errorf("got %d bytes in use", used)
	}
}

// BenchmarkTake is what each request pays for there to be memory for it.
func BenchmarkTake(b *testing.B) {
	m := Of(func() int64 { return 1 << 30 }, inUse)
	b.ReportAllocs()
	for b.Loop() {
		r := Reservation{Budget: m, Flow: "somebody"}
		if !r.Take(64 << 10) {
			b.Fatal("refused")
		}
		r.Give()
	}
}
