package announce

import (
	"net/netip"
	"slices"
	"time"
)

// Times of a claim. From the last answer of who holds an address to the first of who follows:
// patience, and a turn for each who would come before.
const (
	probes      = 3                      // asks before an address is used (A1)
	probeEvery  = 200 * time.Millisecond // between them
	askEvery    = 400 * time.Millisecond // of who waits for an address, to who holds it
	patience    = 1300 * time.Millisecond
	turn        = 300 * time.Millisecond
	tellEvery   = time.Second // after an address was taken: whoever was told otherwise hears it again
	tells       = 5
	checkEvery  = 10 * time.Second // who holds an address asks whether another does too
	foreignFor  = 10 * time.Second // an address that somebody else has is left alone
	handOver    = 3 * time.Second  // who is named no more answers until another does, or for this long
	defendEvery = 10 * time.Second // of two who insist on an address one gives way
)

// A state is what a machine does about an address.
type state int

const (
	looking state = iota // asks whether anybody has it
	waiting              // another machine of the cluster has it
	holding              // it answers
	foreign              // somebody outside of the cluster has it
)

// A Want is an address, and the nodes that may hold it: the first that lives does. A list with a
// higher number is newer.
type Want struct {
	Addr   netip.Addr
	Nodes  []string
	Number uint32
}

// A claim is what one machine knows of one address.
type claim struct {
	addr   netip.Addr
	own    hardware
	self   node
	of     cluster
	list   []node
	number uint32
	rank   int // of this machine in the list; -1: it is named no more

	state    state
	began    time.Time // of the state
	ask      time.Time // when it asks next; zero: it does not
	asked    int       // in this state
	tell     time.Time // when it tells everybody next; zero: it does not
	told     int
	heard    time.Time // waiting: when who holds it was last heard
	holder   hardware
	defended time.Time
	rival    hardware // foreign: who has it
}

func newClaim(addr netip.Addr, own hardware, of cluster, self node) *claim {
	return &claim{addr: addr, own: own, of: of, self: self, rank: -1}
}

// name sets the list, and says whether the claim is still of use.
func (c *claim) name(w *Want, now time.Time) {
	if w == nil { // nobody is to hold it
		c.list, c.rank = nil, -1
		c.enter(looking, now)
		return
	}
	before := c.rank
	c.list, c.number = nil, w.Number
	for _, n := range w.Nodes {
		c.list = append(c.list, nodeOf(n))
	}
	c.rank = slices.Index(c.list, c.self)
	switch {
	case c.rank < 0 && c.state != holding:
		c.enter(looking, now)
	case c.rank < 0:
		c.began = now // the time to hand over
	case before < 0 && c.state != holding:
		c.enter(looking, now)
	}
}

// over says that the claim has nothing left to do.
func (c *claim) over(now time.Time) bool {
	return c.rank < 0 && (c.state != holding || c.list == nil || now.Sub(c.began) >= handOver)
}

func (c *claim) enter(s state, now time.Time) {
	c.state, c.began, c.asked, c.told, c.ask, c.tell = s, now, 0, 0, time.Time{}, time.Time{}
	switch s {
	case looking:
		c.ask = now
	case waiting:
		c.heard, c.ask = now, now.Add(askEvery)
	case holding:
		c.tell, c.ask, c.rival = now, now.Add(checkEvery), hardware{}
	case foreign:
		c.ask = now.Add(foreignFor)
	}
}

// mark is what this machine's frames carry.
func (c *claim) mark() mark {
	m := mark{cluster: c.of, number: c.number, rank: leaving, node: c.self}
	if c.rank >= 0 {
		m.rank = uint8(min(c.rank, leaving-1))
	}
	return m
}

func (c *claim) asks(to hardware) message {
	return message{addr: c.addr, from: c.own, to: to, mark: c.mark()}
}

func (c *claim) tellsAll() message {
	return message{tells: true, addr: c.addr, from: c.own, to: broadcast, mark: c.mark()}
}

// bye is what a holder says that lets go: the next in line need not find out.
func (c *claim) bye() (out []message) {
	if c.state == holding {
		m := c.asks(broadcast)
		m.mark.rank = leaving
		out = append(out, m)
	}
	return out
}

// outranks says that another machine of the cluster is to hold the address rather than this one (A2).
func (c *claim) outranks(m mark) bool {
	if m.rank == leaving {
		return false
	}
	if c.rank < 0 || m.number > c.number { // it is named no more, or the other knows better
		return true
	}
	at := slices.Index(c.list, m.node)
	return at >= 0 && at < c.rank
}

// hear takes in a message about the address, and returns what is said to it.
func (c *claim) hear(m *message, now time.Time) (out []message) {
	if m.from == c.own {
		return nil
	}
	ours := m.mark.cluster == c.of && m.mark != (mark{})
	if !m.tells {
		if ours && m.mark.rank == leaving && c.state == waiting && m.from == c.holder {
			c.heard = now.Add(turn - patience) // what is left is this machine's turn
		}
		if c.state == holding {
			to := m.from
			if !m.asker.IsValid() || m.asker.IsUnspecified() && c.addr.Is6() && !ours {
				to = broadcast // as RFC 4861 has it
			}
			out = append(out, message{tells: true, addr: c.addr, from: c.own, to: to, asker: m.asker, mark: c.mark()})
		}
		return out
	}
	switch {
	case !ours && m.from == c.holder: // what the machine's kernel says
		return nil
	case !ours:
		return c.oppose(m, now)
	}
	switch outranked := c.outranks(m.mark); {
	case outranked && c.state == waiting:
		c.heard, c.holder = now, m.from
	case outranked:
		c.holder = m.from
		c.enter(waiting, now)
	case c.state == holding:
		if now.Sub(c.defended) >= turn { // it has not heard yet
			c.defended = now
			out = append(out, c.tellsAll())
		}
	case c.rank >= 0 && c.state != foreign:
		c.enter(holding, now)
	}
	return out
}

// oppose takes in that somebody outside of the cluster has the address.
func (c *claim) oppose(m *message, now time.Time) (out []message) {
	if c.state == holding && now.Sub(c.defended) >= defendEvery { // RFC 5227, 2.4 (b)
		c.defended, c.ask = now, now.Add(tellEvery)
		return []message{c.tellsAll()}
	}
	c.rival = m.from
	c.enter(foreign, now)
	return nil
}

// due is when this machine is to hold the address if it hears nothing.
func (c *claim) due() time.Time {
	before := time.Duration(max(c.rank, 0)) * turn
	if c.state == looking {
		return c.began.Add(probes*probeEvery + before)
	}
	return c.heard.Add(patience + max(0, before-turn))
}

// tick does what the time has come for, and returns what is said and when it is to be called next.
func (c *claim) tick(now time.Time) (out []message, next time.Time) {
	if c.rank >= 0 && (c.state == looking || c.state == waiting) && !now.Before(c.due()) && (c.state == waiting || c.asked >= probes) {
		c.enter(holding, now)
	}
	if !c.tell.IsZero() && !now.Before(c.tell) {
		out = append(out, c.tellsAll())
		c.told++
		c.tell = now.Add(tellEvery)
		if c.told == tells {
			c.tell = time.Time{}
		}
	}
	if !c.ask.IsZero() && !now.Before(c.ask) {
		out = append(out, c.question(now)...)
	}
	for _, t := range []time.Time{c.ask, c.tell} {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if due := c.due(); c.rank >= 0 && (c.state == looking || c.state == waiting) && due.Before(next) {
		next = due
	}
	return out, next
}

// question asks whoever is to be asked in this state, and sets when that is next.
func (c *claim) question(now time.Time) []message {
	c.asked++
	switch c.state {
	case foreign:
		c.enter(looking, now)
		return c.question(now)
	case waiting:
		c.ask = now.Add(askEvery)
		return []message{c.asks(c.holder)}
	case holding:
		c.ask = now.Add(checkEvery)
		return []message{c.asks(broadcast)}
	}
	c.ask = now.Add(probeEvery)
	return []message{c.asks(broadcast)}
}
