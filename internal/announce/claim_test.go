package announce

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// room is machines that hear each other, and their claims to one address, with a clock of its own.
type room struct {
	*testing.T
	now    time.Time
	addr   netip.Addr
	claims map[string]*claim
	off    map[string]bool // machines that are not there
	from   map[string]bool // hardware addresses outside of the cluster that answer
	tells  int
}

func newRoom(t *testing.T) *room {
	return &room{T: t, now: time.Unix(1, 0), addr: netip.MustParseAddr("192.0.2.7"), claims: map[string]*claim{}, off: map[string]bool{}, from: map[string]bool{}}
}

func at(name string) hardware { return hardware{2, 0, 0, 0, 0, name[0]} }

// name tells machines which nodes are named, "a b c".
func (r *room) name(number uint32, nodes string, machines ...string) {
	for _, m := range machines {
		if r.claims[m] == nil {
			r.claims[m] = newClaim(r.addr, at(m), clusterOf("c"), nodeOf(m))
		}
		r.claims[m].name(&Want{Addr: r.addr, Nodes: strings.Fields(nodes), Number: number}, r.now)
	}
}

func (r *room) names() []string {
	var all []string
	for m := range r.claims {
		if !r.off[m] {
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return all
}

// say delivers what a machine says, and what is said to that.
func (r *room) say(out []message) {
	for _, m := range out {
		if m.tells {
			r.tells++
		}
		for _, name := range r.names() {
			if m.from != at(name) && (m.to == broadcast || m.to == at(name)) {
				r.say(r.claims[name].hear(&m, r.now))
			}
		}
		for other := range r.from {
			if !m.tells && m.to == broadcast {
				answer := message{tells: true, addr: r.addr, from: at(other), to: m.from, asker: r.addr}
				for _, name := range r.names() {
					if m.from == at(name) {
						r.say(r.claims[name].hear(&answer, r.now))
					}
				}
			}
		}
	}
}

// pass lets time pass, and returns for how long nobody held the address, and how long more than one did.
func (r *room) pass(d time.Duration) (none, several time.Duration) {
	const step = 20 * time.Millisecond
	for end := r.now.Add(d); r.now.Before(end); r.now = r.now.Add(step) {
		for _, name := range r.names() {
			out, _ := r.claims[name].tick(r.now)
			r.say(out)
		}
		switch n := len(strings.Fields(r.holders())); {
		case n == 0:
			none += step
		case n > 1:
			several += step
		}
	}
	return none, several
}

func (r *room) holders() string {
	var all []string
	for _, name := range r.names() {
		if r.claims[name].state == holding && !r.claims[name].over(r.now) {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

func (r *room) want(holders string) {
	r.Helper()
	if got := r.holders(); got != holders {
		r.Fatalf("it is held by %q, want %q", got, holders)
	}
}

func TestFirstOfThoseNamedHoldsTheAddress(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.name(1, "b a c", "a", "b", "c")
	none, several := r.pass(5 * time.Second)
	r.want("b")
	if none > time.Second || several > 0 {
		t.Errorf("for %s nobody had it, for %s several had", none, several)
	}
	// At rest little is said.
	r.tells = 0
	r.pass(time.Minute)
	if r.tells > 2*60*3 {
		t.Errorf("within a minute it was told %d times", r.tells)
	}
}

func TestNextFollowsWithinThreeSeconds(t *testing.T) {
	t.Parallel()
	for _, phase := range []time.Duration{0, 100 * time.Millisecond, 250 * time.Millisecond, 390 * time.Millisecond} {
		r := newRoom(t)
		r.name(1, "a b c", "a", "b", "c")
		r.pass(5*time.Second + phase)
		r.want("a")
		r.off["a"] = true
		none, several := r.pass(4 * time.Second)
		r.want("b")
		if none >= 3*time.Second || several > 0 {
			t.Errorf("for %s nobody had it, for %s several had", none, several)
		}
		r.off["b"] = true
		if none, _ := r.pass(4 * time.Second); none >= 3*time.Second {
			t.Errorf("for %s nobody had it", none)
		}
		r.want("c")
		// Who comes back and is before others has it again, and nobody loses it meanwhile.
		r.off["a"] = false
		r.claims["a"] = nil
		delete(r.claims, "a")
		r.name(1, "a b c", "a")
		if none, _ := r.pass(2 * time.Second); none > 0 {
			t.Errorf("for %s nobody had it", none)
		}
		r.want("a")
	}
}

func TestAllButTheLastMayDieAtOnce(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.name(1, "a b c", "a", "b", "c")
	r.pass(5 * time.Second)
	r.off["a"], r.off["b"] = true, true
	if none, _ := r.pass(4 * time.Second); none >= 3*time.Second {
		t.Errorf("for %s nobody had it", none)
	}
	r.want("c")
}

func TestAddressIsHandedOverWithoutABreak(t *testing.T) {
	t.Parallel()
	for order, list := range map[string][]string{"the old one hears first": {"a", "b", "c"}, "the new one hears first": {"c", "b", "a"}} {
		r := newRoom(t)
		r.name(1, "a b", "a", "b")
		r.pass(5 * time.Second)
		r.want("a")
		gap := time.Duration(0)
		for _, machine := range list { // one hears of the new list after the other
			r.name(2, "c b", machine)
			none, _ := r.pass(500 * time.Millisecond)
			gap += none
		}
		none, _ := r.pass(5 * time.Second)
		r.want("c")
		if gap += none; gap > 0 {
			t.Errorf("%s: for %s nobody had it", order, gap)
		}
		if !r.claims["a"].over(r.now) {
			t.Errorf("%s: who is named no more has still something to do", order)
		}
	}
}

func TestWhoLeavesSaysSo(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.name(1, "a b", "a", "b")
	r.pass(5 * time.Second)
	bye := r.claims["a"].bye()
	r.off["a"] = true
	r.say(bye)
	if none, _ := r.pass(2 * time.Second); none > 500*time.Millisecond {
		t.Errorf("for %s nobody had it", none)
	}
	r.want("b")
}

func TestAddressOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.from["x"] = true
	r.name(1, "a b", "a", "b")
	r.pass(time.Minute)
	r.want("")
	if r.tells > 0 {
		t.Errorf("it was told %d times at whom it is", r.tells)
	}
	if got := fmt.Sprint(r.claims["a"].rival); got != at("x").String() {
		t.Errorf("it is said to be at %s", got)
	}
	delete(r.from, "x")
	r.pass(15 * time.Second)
	r.want("a")
	// One who comes later is told once, and then has it.
	r.from["x"] = true
	r.pass(40 * time.Second)
	r.want("")
}

func TestAddressOfNobodyIsAnsweredForByNobody(t *testing.T) {
	t.Parallel()
	r := newRoom(t)
	r.name(1, "a b", "a", "b")
	r.pass(5 * time.Second)
	for _, m := range []string{"a", "b"} {
		r.claims[m].name(nil, r.now)
		if !r.claims[m].over(r.now) {
			t.Errorf("%s has something left to do", m)
		}
	}
}
