package bfd

import "time"

// slow is how often is sent at the most while a session is not up (F3).
const slow = time.Second

// machine is one end of a session. It belongs to one goroutine.
type machine struct {
	number     uint32        // of the session here
	interval   time.Duration // at which packets are to go both ways
	multiplier uint8

	state state
	diag  uint8
	asks  bool // for an answer that says that the other end knows how often is sent now

	// Of the other end, as it has said last.
	other       packet
	silentAfter time.Time // when it is taken for dead; zero: it is not waited for
}

func newMachine(number uint32, interval time.Duration, multiplier uint8) *machine {
	// Who has said nothing yet is sent to.
	return &machine{number: number, interval: interval, multiplier: multiplier, state: down, other: packet{state: down, take: time.Microsecond}}
}

// wanted is how often this end wants to send now.
func (m *machine) wanted() time.Duration {
	if m.state != up {
		return max(m.interval, slow)
	}
	return m.interval
}

// say is the next packet; final: it answers one that asks.
func (m *machine) say(final bool) packet {
	return packet{
		diag: m.diag, state: m.state, poll: m.asks && !final, final: final, multiplier: m.multiplier,
		mine: m.number, yours: m.other.mine, send: m.wanted(), take: m.interval,
	}
}

// hear takes in a packet of this session. changed says that the state is another one now.
func (m *machine) hear(p packet, now time.Time) (changed bool) {
	if m.state == adminDown {
		return false
	}
	m.other = p
	if p.final {
		m.asks = false
	}
	m.silentAfter = now.Add(time.Duration(p.multiplier) * max(m.interval, p.send))
	before := m.state
	switch {
	case p.state == adminDown:
		if m.state != down {
			m.fall(diagTold)
		}
	case m.state == down && p.state == down:
		m.state = initial
	case m.state == down && p.state == initial, m.state == initial && p.state >= initial:
		m.state, m.diag, m.asks = up, diagNone, true
	case m.state == up && p.state == down:
		m.fall(diagTold)
	}
	return m.state != before
}

// missed takes in that the time has come at which the other end is silent for too long. changed says that there was a session.
func (m *machine) missed() (changed bool) {
	changed = m.state != down
	m.fall(diagSilent)
	m.other, m.silentAfter = packet{state: down, take: time.Microsecond}, time.Time{}
	return changed
}

func (m *machine) fall(diag uint8) { m.state, m.diag, m.asks = down, diag, false }

// leave ends the session from this side.
func (m *machine) leave() { m.state, m.diag, m.asks = adminDown, diagAdminDown, false }

// pause is how long is waited for the next packet, by a number from 0 to 1 that is drawn for it: up to a quarter less than
// agreed, and at least a tenth less where a single packet that is late is a failure. 0: the other end wants none.
func (m *machine) pause(drawn float64) time.Duration {
	if m.other.take == 0 || m.other.demand && m.state == up && m.other.state == up && !m.asks {
		return 0
	}
	least, most := 0.75, 1.0
	if m.multiplier == 1 {
		most = 0.9
	}
	return time.Duration(float64(max(m.wanted(), m.other.take)) * (least + drawn*(most-least)))
}
