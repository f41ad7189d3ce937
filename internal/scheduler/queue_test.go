package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/scheduler/snapshot"
)

// queueTest drives a queue by hand; times are seconds from its start.
type queueTest struct {
	t    *testing.T
	q    *queue
	snap *snapshot.Snapshot
	by   *profile
}

func newQueueTest(t *testing.T) *queueTest {
	snap := snapshot.New(nil)
	return &queueTest{t: t, q: newQueue(time.Second, 10*time.Second), snap: snap, by: &profile{cycle: newCycle(snap)}}
}

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func second(s float64) time.Time { return dawn.Add(time.Duration(s * float64(time.Second))) }

func (x *queueTest) add(line string, s float64) *pending {
	return x.q.add(x.snap.NewPod(parsePod(split(line))), x.by, second(s))
}

func (x *queueTest) get(name string) *pending { return x.q.get(types.UID(name)) }

// pops checks what comes out at a time, in order, until nothing does.
func (x *queueTest) pops(s float64, want ...string) {
	x.t.Helper()
	var got []string
	for item := x.q.pop(second(s)); item != nil; item = x.q.pop(second(s)) {
		got = append(got, item.pod.Obj.Name)
	}
	if !slices.Equal(got, want) {
		x.t.Errorf("at %vs: popped %q, want %q", s, got, want)
	}
}

func TestQueueOrdersByPriorityThenByArrival(t *testing.T) {
	x := newQueueTest(t)
	x.add("late", 2)
	x.add("early", 1)
	x.add("important prio=10", 3)
	x.add("unimportant prio=-1", 0)
	x.add("alsoearly", 1)
	x.pops(5, "important", "early", "alsoearly", "late", "unimportant")
}

func TestQueueDoublesTheWaitUpToTenSeconds(t *testing.T) {
	x := newQueueTest(t)
	item := x.add("p", 0)
	now := 0.0
	for _, wait := range []float64{1, 2, 4, 8, 10, 10} {
		x.pops(now, "p")
		x.q.retry(item, second(now))
		x.pops(now + wait - 0.1)
		if next := x.q.next(); !next.Equal(second(now + wait)) {
			t.Errorf("next is at %v, want %v", next.Sub(dawn), wait)
		}
		now += wait
	}
	x.pops(now, "p")
}

func TestQueueHoldsRefusedPodsUntilAnEventOrFiveMinutes(t *testing.T) {
	x := newQueueTest(t)
	a, b := x.add("a", 0), x.add("b", 0)
	x.pops(0, "a", "b")
	x.q.refuse(a, 1, second(0))
	x.q.refuse(b, 2, second(0))
	x.pops(100)
	x.q.wake(a, second(100))
	x.pops(100, "a")
	x.pops(299)
	x.pops(300, "b")
}

func TestQueueTriesWokenPodsEarlyOnlyWhenThereIsNothingElse(t *testing.T) {
	x := newQueueTest(t)
	a, broken := x.add("a", 0), x.add("broken", 0)
	x.pops(0, "a", "broken")
	x.q.refuse(a, 1, second(0))
	x.q.retry(broken, second(0))
	x.q.wake(a, second(0.5)) // its wait is not over
	if a.place != backoff {
		t.Errorf("a is %s, want in back-off", a.place)
	}
	x.add("fresh", 0.6)
	x.pops(0.6, "fresh", "a") // but not the one whose attempt failed
	x.pops(1, "broken")
}

func TestQueueHoldsGatedPodsAndLetsChangedOnesGo(t *testing.T) {
	x := newQueueTest(t)
	item := x.add("p gate=g", 0)
	x.pops(400)
	x.q.replace(item, x.snap.NewPod(parsePod(split("p"))), second(400))
	x.pops(400, "p")
	x.q.refuse(item, 1, second(400))
	x.q.replace(item, x.snap.NewPod(parsePod(split("p tol=k"))), second(401))
	x.pops(401, "p")
	x.q.refuse(item, 1, second(401))
	x.q.replace(item, x.snap.NewPod(parsePod(split("p gate=g"))), second(402))
	x.pops(900)
	x.q.replace(item, x.snap.NewPod(parsePod(split("p"))), second(900))
	x.pops(900, "p")
}

func TestQueueForgetsPodsInEveryPlace(t *testing.T) {
	x := newQueueTest(t)
	for _, name := range []string{"active", "backoff", "unschedulable", "flying"} {
		x.add(name, 0)
	}
	x.add("gated gate=g", 0)
	for range 4 {
		x.q.pop(second(0))
	}
	x.q.retry(x.get("backoff"), second(0))
	x.q.refuse(x.get("unschedulable"), 1, second(0))
	x.q.replace(x.get("active"), x.get("active").pod, second(0))
	for _, name := range []string{"active", "backoff", "unschedulable", "flying", "gated"} {
		x.q.remove(x.get(name))
	}
	x.pops(1000)
	if len(x.q.pods)+len(x.q.byRefused) != 0 || !x.q.next().IsZero() {
		t.Errorf("something is left: %d pods, %d refusals, next %v", len(x.q.pods), len(x.q.byRefused), x.q.next())
	}
	for p, n := range x.q.counts {
		if n != 0 {
			t.Errorf("%d pods counted as %s, want 0", n, p)
		}
	}
}

// Calls about one pod are made one after the other (B2), and only the last
// word about its state is.
func TestCallsAboutAPodAreMadeInTurn(t *testing.T) {
	var names []string
	c := &calls{byPod: map[types.UID][]*call{}}
	add := func(kind callKind, name string) {
		c.running = callsAtOnce // so that nothing starts
		c.add(&call{pod: "p", kind: kind, do: nil, then: func(error) { names = append(names, name) }})
	}
	add(stateCall, "first")
	add(stateCall, "second")
	add(stateCall, "third")
	add(evictCall, "evict")
	add(stateCall, "fourth")
	add(bindCall, "bind")
	if len(c.ready) != 1 {
		t.Fatalf("%d calls are ready, want 1", len(c.ready))
	}
	for len(c.ready) > 0 {
		x := c.ready[0]
		c.ready = c.ready[1:]
		c.running = callsAtOnce + 1
		c.answer(x)
	}
	if got := strings.Join(names, " "); got != "first evict bind" {
		t.Errorf("made %s, want first evict bind", got)
	}
	if len(c.byPod) != 0 {
		t.Errorf("left: %s", fmt.Sprint(c.byPod))
	}
}
