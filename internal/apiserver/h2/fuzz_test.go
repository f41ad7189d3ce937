package h2

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"testing"

	"golang.org/x/net/http2"
)

// FuzzCredit sends any bytes, in pieces of any size: what the library reads of the
// frames that are passed on is what it reads of those that came, but that window updates
// are added up, and none of them is lost.
func FuzzCredit(f *testing.F) {
	var b bytes.Buffer
	w := http2.NewFramer(&b, nil)
	for _, write := range []error{
		w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}), w.WriteWindowUpdate(0, 1<<20),
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x87\x84\x41\x01x"), EndStream: true, EndHeaders: true}),
		w.WriteWindowUpdate(1, 100), w.WriteWindowUpdate(0, 100), w.WriteWindowUpdate(1, 1<<18), w.WriteData(3, false, []byte("data")),
		w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 10}), w.WriteWindowUpdate(1, 1), w.WritePing(false, [8]byte{1}),
	} {
		if write != nil {
			f.Fatal(write)
		}
	}
	f.Add(b.Bytes(), uint16(1))
	f.Add(b.Bytes(), uint16(13))
	f.Add(b.Bytes()[:b.Len()-3], uint16(4096))
	f.Add([]byte{0, 0, 4, updateFrame, 0xff, 0x80, 0, 0, 1, 0, 0, 0, 0}, uint16(5))
	f.Fuzz(func(t *testing.T, sent []byte, piece uint16) {
		in := append([]byte(http2.ClientPreface), sent...)
		c := newCredit()
		var out []byte
		for rest := in; len(rest) > 0; {
			n := min(int(piece)+1, len(rest))
			out = c.filter(out, rest[:n])
			rest = rest[n:]
		}
		left := len(c.held)
		if out = c.flush(out); len(out) > len(in) || left > heldKinds {
			t.Fatalf("%d bytes became %d, window updates of %d streams were held", len(in), len(out), left)
		}
		wantUpdates, want, _ := read(in)
		gotUpdates, got, whole := read(out)
		// The library stops at what breaks the rules, so that no more can be compared
		// than it reads of either.
		if n := min(len(got), len(want)); !bytes.Equal(got[:n], want[:n]) {
			t.Fatalf("frames:\n got %q\nwant %q", got, want)
		}
		if whole && len(got) == len(want) && !maps.Equal(gotUpdates, wantUpdates) {
			t.Fatalf("window updates: got %v, want %v", gotUpdates, wantUpdates)
		}
	})
}

// read has the library read frames, until one breaks the rules: it sums up what
// each window is opened, and lists the others. whole: none did, and the last of
// them is all there.
func read(data []byte) (updates map[uint32]uint64, others []byte, whole bool) {
	updates = map[uint32]uint64{}
	r := bytes.NewReader(data[len(http2.ClientPreface):])
	f := http2.NewFramer(io.Discard, r)
	f.AllowIllegalReads = true
	f.SetMaxReadFrameSize(1<<24 - 1)
	for {
		start := len(data) - r.Len()
		frame, err := f.ReadFrame()
		if err != nil { // the end after the head of a frame is io.EOF, too
			return updates, others, errors.Is(err, io.EOF) && start == len(data)
		}
		if u, ok := frame.(*http2.WindowUpdateFrame); ok {
			updates[u.StreamID] += uint64(u.Increment)
			continue
		}
		others = append(others, data[start:len(data)-r.Len()]...)
	}
}
