package h2

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"

	"golang.org/x/net/http2"
)

// frames writes what a client sends: its preface, settings and first window update, and
// a request.
func frames(t *testing.T, w io.Writer, stream, connection uint32) *http2.Framer {
	t.Helper()
	f := http2.NewFramer(w, nil)
	_, err := io.WriteString(w, http2.ClientPreface)
	check(t, err)
	check(t, f.WriteSettings(http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: stream}))
	if connection > 0 {
		check(t, f.WriteWindowUpdate(0, connection))
	}
	// GET https://x/ by the numbers of the static table.
	check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte("\x82\x87\x84\x41\x01x"), EndStream: true, EndHeaders: true}))
	return f
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// opened sums up how far each window was opened, and returns all other frames.
func opened(t *testing.T, sent []byte) (sums map[uint32]int, updates int, others []byte) {
	t.Helper()
	sums, sent = map[uint32]int{}, bytes.TrimPrefix(sent, []byte(http2.ClientPreface))
	for len(sent) > 0 {
		frame := sent[:headSize+length(sent)]
		if sent = sent[len(frame):]; frame[3] == updateFrame {
			sums[binary.BigEndian.Uint32(frame[5:])] += int(binary.BigEndian.Uint32(frame[headSize:]))
			updates++
		} else {
			others = append(others, frame...)
		}
	}
	return sums, updates, others
}

func TestWindowUpdatesAddUpAndAllElsePasses(t *testing.T) {
	given, left := 0, 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var in bytes.Buffer
		f := frames(t, &in, 1<<rnd.IntN(30), rnd.Uint32N(1<<30))
		for range rnd.IntN(200) {
			stream := rnd.Uint32N(20) * 2
			switch rnd.IntN(20) {
			case 0:
				check(t, f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: rnd.Uint32N(1 << 24)}))
			case 1:
				check(t, f.WriteSettingsAck())
			case 2:
				check(t, f.WriteData(stream+1, false, make([]byte, rnd.IntN(5000))))
			case 3:
				check(t, f.WriteRSTStream(stream+1, http2.ErrCodeCancel))
			default:
				check(t, f.WriteWindowUpdate(stream, 1+rnd.Uint32N(1<<rnd.IntN(20))))
			}
		}
		c := newCredit()
		var out []byte
		for rest := in.Bytes(); len(rest) > 0; {
			n := min(1+rnd.IntN(1+rnd.IntN(2000)), len(rest))
			if out = c.filter(out, rest[:n]); rnd.IntN(10) == 0 {
				out = c.flush(out)
			}
			rest = rest[n:]
		}
		out = c.flush(out)
		want, before, others := opened(t, in.Bytes())
		got, after, passed := opened(t, out)
		given, left = given+before, left+after
		if !bytes.Equal(passed, others) {
			t.Fatalf("seed %d: other frames: got %d bytes, want the %d that were sent", seed, len(passed), len(others))
		}
		for stream, n := range want {
			if got[stream] != n {
				t.Errorf("seed %d: window of stream %d was opened by %d, want %d", seed, stream, got[stream], n)
			}
		}
	}
	if given < 10000 || left == 0 || left > given*9/10 {
		t.Errorf("%d window updates became %d, want at least 10,000 to become fewer", given, left)
	}
}

func TestManySmallWindowUpdatesBecomeFew(t *testing.T) {
	var in bytes.Buffer
	f := frames(t, &in, 4<<20, 1<<30)
	for range 1000 { // as Go's client does it
		check(t, f.WriteWindowUpdate(0, 8<<10))
		check(t, f.WriteWindowUpdate(1, 8<<10))
	}
	c := newCredit()
	sums, n, _ := opened(t, c.filter(nil, in.Bytes()))
	if n > 40 {
		t.Errorf("2,000 window updates became %d, want at most 40", n)
	}
	if short := 1000*8<<10 - sums[1]; short >= 4<<20/heldShare {
		t.Errorf("%d bytes of a window of 4 MiB are held back", short)
	}
}

func TestFilterBearsAnyBytes(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		in := make([]byte, rnd.IntN(3000))
		for i := range in {
			in[i] = byte(rnd.IntN(10)) // many short frames of known kinds
		}
		c := newCredit()
		if out := c.flush(c.filter(nil, in)); len(out) > len(in) {
			t.Errorf("seed %d: %d bytes became %d", seed, len(in), len(out))
		}
	}
}

// TestClientThatWaitsForTheLastByteGetsIt has a client that makes its windows
// larger by little, and then says nothing until they are used up.
func TestClientThatWaitsForTheLastByteGetsIt(t *testing.T) {
	const more = 1000
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write(make([]byte, firstWindow+more)); err != nil {
			t.Error(err)
		}
	}))
	conn, err := tls.Dial("tcp", url[len("https://"):], &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	check(t, err)
	defer conn.Close()
	f := frames(t, conn, firstWindow, 0)
	check(t, f.WriteWindowUpdate(0, more))
	check(t, f.WriteWindowUpdate(1, more))
	answers := http2.NewFramer(nil, conn)
	for got := 0; got < firstWindow+more; {
		frame, err := answers.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes of %d: %v", got, firstWindow+more, err)
		}
		if data, ok := frame.(*http2.DataFrame); ok {
			got += len(data.Data())
		}
	}
}

// TestWidensTheBuffersOfThisLibrary fails when golang.org/x/net/http2 has no such
// pool any more: it is then ours alone, and empty.
func TestWidensTheBuffersOfThisLibrary(t *testing.T) {
	if had == nil {
		t.Error("the library has no pool of buffers for its servers")
	}
	widen()
	if b, ok := serverBuffers.Get().(*bufio.Writer); !ok || b.Size() != serverBuffer {
		t.Errorf("the server gets a %T, want a buffer of %d bytes", b, serverBuffer)
	}
}

// had is how the library makes buffers.
var had = serverBuffers.New
