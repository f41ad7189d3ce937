package announce

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestFramesSayWhatTheyWereMadeOf(t *testing.T) {
	t.Parallel()
	own, other := hardware{2, 0, 0, 0, 0, 1}, hardware{2, 0, 0, 0, 0, 2}
	marked := mark{clusterOf("c"), 7, 1, nodeOf("n")}
	for _, text := range []string{"192.0.2.7", "2001:db8::7"} {
		addr := netip.MustParseAddr(text)
		for _, tc := range []struct {
			say  message
			want string
		}{
			{message{addr: addr, from: own, to: broadcast, mark: marked}, "asks"},
			{message{addr: addr, from: own, to: other}, "asks"},
			{message{tells: true, addr: addr, from: own, to: broadcast, mark: marked}, "tells"},
			{message{tells: true, addr: addr, from: own, to: other, asker: addr.Next(), mark: marked}, "tells"},
		} {
			for _, frame := range tc.say.frames() {
				if len(frame) < 60 {
					t.Errorf("%v: got a frame of %d bytes, want at least 60, as Ethernet pads", tc.say, len(frame))
				}
				all := parse(frame)
				if len(all) != 1 {
					t.Fatalf("%v: got %d messages", tc.say, len(all))
				}
				got := all[0]
				if got.tells != tc.say.tells || got.addr != addr || got.from != own || got.mark != tc.say.mark {
					t.Errorf("got %+v, want %+v", got, tc.say)
				}
				if !got.tells && got.asker.IsValid() && !got.asker.IsUnspecified() {
					t.Errorf("got an ask from %s: others would learn from it", got.asker)
				}
			}
		}
	}
}

func TestFramesOfOthersAreRead(t *testing.T) {
	t.Parallel()
	// An ask by ARP is also word of who asks.
	ask := message{tells: true, addr: netip.MustParseAddr("192.0.2.1"), from: hardware{2, 0, 0, 0, 0, 3}, to: broadcast}
	frame := ask.arp(arpRequest)
	copy(frame[targetAt:], netip.MustParseAddr("192.0.2.7").AsSlice())
	got := ""
	for _, m := range parse(frame[:arpEnd]) {
		got += fmt.Sprintf("%v %s asked by %s; ", m.tells, m.addr, m.asker)
	}
	if want := "false 192.0.2.7 asked by 192.0.2.1; true 192.0.2.1 asked by invalid IP; "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzFrames(f *testing.F) {
	own := hardware{2, 0, 0, 0, 0, 1}
	for _, text := range []string{"192.0.2.7", "2001:db8::7"} {
		for _, m := range []message{{addr: netip.MustParseAddr(text), from: own, to: broadcast}, {tells: true, addr: netip.MustParseAddr(text), from: own, to: broadcast, mark: mark{number: 1}}} {
			for _, frame := range m.frames() {
				f.Add(frame)
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, m := range parse(frame) {
			if !m.addr.IsValid() {
				t.Errorf("got a message of no address from %x", frame)
			}
		}
	})
}
