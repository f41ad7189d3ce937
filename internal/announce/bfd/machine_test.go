package bfd

import (
	"testing"
	"time"
)

// pair are two ends that hear each other, at a time of the test's.
type pair struct {
	a, b *machine
	now  time.Time
}

func newPair() *pair {
	return &pair{newMachine(1, 300*time.Millisecond, 3), newMachine(2, 100*time.Millisecond, 5), time.Unix(1000, 0)}
}

// pass has one end hear the other, which hears the answer if one is wanted.
func (p *pair) pass(from, to *machine) {
	said := from.say(false)
	to.hear(said, p.now)
	if said.poll {
		from.hear(to.say(true), p.now)
	}
}

func (p *pair) meet(t *testing.T) {
	t.Helper()
	for range 3 {
		p.pass(p.a, p.b)
		p.pass(p.b, p.a)
	}
	if p.a.state != up || p.b.state != up {
		t.Fatalf("got %s and %s, want both Up", p.a.state, p.b.state)
	}
}

func TestEndsThatHearEachOtherAreUp(t *testing.T) {
	t.Parallel()
	p := newPair()
	for i, want := range []struct{ a, b state }{{down, initial}, {up, initial}, {up, up}} {
		if i%2 == 0 {
			p.pass(p.a, p.b)
		} else {
			p.pass(p.b, p.a)
		}
		if p.a.state != want.a || p.b.state != want.b {
			t.Fatalf("after %d packets: got %s and %s, want %s and %s", i+1, p.a.state, p.b.state, want.a, want.b)
		}
	}
	if p.a.asks {
		t.Error("that it sends faster now was answered, and it still asks")
	}
}

// A packet a second is sent until both are up, and then as many as the slower end wants.
func TestPaceIsThatOfTheSlowerEnd(t *testing.T) {
	t.Parallel()
	p := newPair()
	for drawn, want := range map[float64]time.Duration{0: 750 * time.Millisecond, 1: time.Second} {
		if got := p.a.pause(drawn); got != want {
			t.Errorf("while it is down: got a pause of %s, want %s", got, want)
		}
	}
	if got := p.a.say(false).send; got != time.Second {
		t.Errorf("it says that it sends each %s, want 1s", got)
	}
	p.meet(t)
	p.pass(p.a, p.b)
	for _, m := range []*machine{p.a, p.b} {
		if got := m.pause(1); got != 300*time.Millisecond {
			t.Errorf("once it is up: got a pause of %s, want 300ms", got)
		}
	}
	if got := p.a.silentAfter.Sub(p.now); got != 1500*time.Millisecond { // five packets of the other's at its own pace
		t.Errorf("the other end may be silent for %s, want 1.5s", got)
	}
	if got := p.b.silentAfter.Sub(p.now); got != 900*time.Millisecond {
		t.Errorf("this end may be silent for %s, want 900ms", got)
	}
	p.a.multiplier = 1
	if got := p.a.pause(1); got != 270*time.Millisecond {
		t.Errorf("where one that is late is a failure: got a pause of %s, want a tenth less than 300ms", got)
	}
	quiet := p.b.say(false)
	quiet.take = 0
	p.a.hear(quiet, p.now)
	if got := p.a.pause(1); got != 0 {
		t.Errorf("the other end wants no packets: got a pause of %s, want none to be due", got)
	}
	p.b.other.demand, p.b.asks = true, false
	if got := p.b.pause(1); got != 0 {
		t.Errorf("the other end asks when it wants to know: got a pause of %s, want none to be due", got)
	}
}

func TestFailuresAndFarewellsAreToldApart(t *testing.T) {
	t.Parallel()
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		p := newPair()
		p.meet(t)
		if !p.a.missed() || p.a.state != down {
			t.Errorf("got %s, want Down", p.a.state)
		}
		if said := p.a.say(false); said.diag != diagSilent || said.yours != 0 {
			t.Errorf("it says %+v, want that it has heard nothing, and of nobody", said)
		}
		p.pass(p.a, p.b)
		if said := p.b.say(false); p.b.state != down || said.diag != diagTold {
			t.Errorf("got %s and %+v, want the other end down, as it was told", p.b.state, said)
		}
		p.meet(t) // again
		if p.a.diag != diagNone {
			t.Errorf("got reason %d, want none any more", p.a.diag)
		}
	})
	t.Run("farewell", func(t *testing.T) {
		t.Parallel()
		p := newPair()
		p.meet(t)
		p.a.leave()
		said := p.a.say(false)
		if said.state != adminDown || said.diag != diagAdminDown {
			t.Errorf("it says %+v, want that it leaves", said)
		}
		p.pass(p.a, p.b)
		p.pass(p.b, p.a)
		if p.a.state != adminDown || p.b.state != down {
			t.Errorf("got %s and %s, want AdminDown and Down", p.a.state, p.b.state)
		}
	})
	t.Run("never met", func(t *testing.T) {
		t.Parallel()
		p := newPair()
		if p.a.missed() {
			t.Error("it is news that nobody is there")
		}
		p.a.hear(packet{state: up, multiplier: 3, mine: 9, yours: 1, take: time.Second}, p.now)
		if p.a.state != down {
			t.Errorf("got %s by a packet of a session of before, want Down", p.a.state)
		}
	})
}
