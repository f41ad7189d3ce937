package bfd

import (
	"reflect"
	"testing"
	"time"

	gobgp "github.com/osrg/gobgp/v4/pkg/packet/bfd"
)

// TestPacketsAreWhatOthersReadAndWrite has gobgp read what is written here, and what it writes is read here.
func TestPacketsAreWhatOthersReadAndWrite(t *testing.T) {
	t.Parallel()
	want := packet{diag: diagSilent, state: initial, poll: true, multiplier: 3, mine: 7, yours: 1 << 31, send: 300 * time.Millisecond, take: time.Second}
	var theirs gobgp.BFDHeader
	if err := theirs.UnmarshalBinary(want.encode()); err != nil {
		t.Fatal(err)
	}
	if theirs.Version != version || theirs.Diagnostic != diagSilent || theirs.State != gobgp.StateInit || !theirs.Poll || theirs.Final || theirs.DetectTimeMultiplier != 3 ||
		theirs.MyDiscriminator != 7 || theirs.YourDiscriminator != 1<<31 || theirs.DesiredMinTxInterval != 300_000 || theirs.RequiredMinRxInterval != 1_000_000 {
		t.Errorf("gobgp reads %+v of %+v", theirs, want)
	}
	data, err := theirs.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decode(data); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestPacketsThatCannotBeAreRefused(t *testing.T) {
	t.Parallel()
	good := packet{state: up, multiplier: 3, mine: 1, yours: 2}
	for what, spoil := range map[string]func(b []byte) []byte{
		"of another version":     func(b []byte) []byte { b[0] = 2 << 5; return b },
		"too short":              func(b []byte) []byte { return b[:packetSize-1] },
		"shorter than it says":   func(b []byte) []byte { b[3]++; return b },
		"too short by its word":  func(b []byte) []byte { b[3]--; return b },
		"without a multiplier":   func(b []byte) []byte { b[2] = 0; return b },
		"to many":                func(b []byte) []byte { b[1] |= bitMany; return b },
		"signed":                 func(b []byte) []byte { b[1] |= bitAuth; return b },
		"of no session":          func(b []byte) []byte { b[7] = 0; return b },
		"up, and heard nobody":   func(b []byte) []byte { b[11] = 0; return b },
		"empty":                  func([]byte) []byte { return nil },
		"init, and heard nobody": func(b []byte) []byte { b[1], b[11] = byte(initial)<<6, 0; return b },
	} {
		if got, err := decode(spoil(good.encode())); err == nil {
			t.Errorf("a packet %s is taken: %+v", what, got)
		}
	}
	if _, err := decode(append(good.encode(), 0)); err != nil { // Ethernet pads
		t.Error(err)
	}
}

// FuzzPackets has no packet break a session, whatever it says, and none is written otherwise than it was read.
func FuzzPackets(f *testing.F) {
	for _, p := range []packet{{multiplier: 1, mine: 1}, {state: up, poll: true, demand: true, multiplier: 255, mine: 1, yours: 5, send: time.Hour, take: time.Hour}} {
		f.Add(p.encode())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decode(data)
		if err != nil {
			return
		}
		if again, err := decode(p.encode()); err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("got %+v, %v, want %+v", again, err, p)
		}
		m := newMachine(5, 300*time.Millisecond, 3)
		now := time.Unix(1, 0)
		for range 3 {
			m.hear(p, now)
			if wait := m.pause(0.5); wait < 0 || wait > 0 && wait < 200*time.Millisecond {
				t.Errorf("after %+v the next packet is due in %s", p, wait)
			}
			if m.silentAfter.Before(now) {
				t.Errorf("after %+v the other end is late already", p)
			}
		}
		m.missed()
	})
}
