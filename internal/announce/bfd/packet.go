package bfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
)

// A state of a session, by its number in packets.
type state uint8

const (
	adminDown state = iota // that end has taken leave
	down
	initial // that end hears this one, and does not know yet that it is heard
	up
)

func (s state) String() string { return [...]string{"AdminDown", "Down", "Init", "Up"}[s] }

// Why an end is not up, by its number in packets.
const (
	diagNone      = 0
	diagSilent    = 1 // it has heard nothing for too long
	diagTold      = 3 // the other end has said that it is down
	diagAdminDown = 7
)

// Bits of the second byte.
const (
	bitPoll   = 1 << 5
	bitFinal  = 1 << 4
	bitAuth   = 1 << 2
	bitDemand = 1 << 1
	bitMany   = 1 << 0 // of a neighbour with several others, which no version knows yet
)

const (
	version    = 1
	packetSize = 24
)

// packet is what one end says. Times are told in microseconds.
type packet struct {
	diag        uint8
	state       state
	poll, final bool
	demand      bool
	multiplier  uint8         // of the sender's packets, so many that are missed in a row are a failure
	mine, yours uint32        // numbers of the session at the sender and at the receiver; yours 0: not known yet
	send, take  time.Duration // how often the sender wants to send, and can receive at the most; take 0: not at all
}

func (p *packet) encode() []byte {
	b := make([]byte, packetSize)
	b[0] = version<<5 | p.diag&0x1f
	b[1] = byte(p.state) << 6
	for bit, set := range map[byte]bool{bitPoll: p.poll, bitFinal: p.final, bitDemand: p.demand} {
		if set {
			b[1] |= bit
		}
	}
	b[2], b[3] = p.multiplier, packetSize
	binary.BigEndian.PutUint32(b[4:], p.mine)
	binary.BigEndian.PutUint32(b[8:], p.yours)
	binary.BigEndian.PutUint32(b[12:], uint32(p.send/time.Microsecond))
	binary.BigEndian.PutUint32(b[16:], uint32(p.take/time.Microsecond))
	return b // no echo is wanted: the last four bytes are 0
}

// decode reads a packet, and refuses those that RFC 5880, 6.8.6 has dropped, as far as that shows without a session.
func decode(b []byte) (packet, error) {
	if len(b) < packetSize || int(b[3]) < packetSize || int(b[3]) > len(b) {
		return packet{}, errors.New("it is too short")
	}
	p := packet{
		diag: b[0] & 0x1f, state: state(b[1] >> 6), poll: b[1]&bitPoll != 0, final: b[1]&bitFinal != 0, demand: b[1]&bitDemand != 0,
		multiplier: b[2], mine: binary.BigEndian.Uint32(b[4:]), yours: binary.BigEndian.Uint32(b[8:]),
		send: time.Duration(binary.BigEndian.Uint32(b[12:])) * time.Microsecond, take: time.Duration(binary.BigEndian.Uint32(b[16:])) * time.Microsecond,
	}
	switch {
	case b[0]>>5 != version:
		return p, fmt.Errorf("it is of version %d", b[0]>>5)
	case b[1]&bitAuth != 0:
		return p, errors.New("it is signed, and there is no key here")
	case b[1]&bitMany != 0 || p.multiplier == 0 || p.mine == 0 || p.yours == 0 && p.state > down:
		return p, errors.New("it contradicts itself")
	}
	return p, nil
}
