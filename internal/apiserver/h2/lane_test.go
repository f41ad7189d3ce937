package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/test/wait"
)

// wrapped is a writer of another's, as handlers often have.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// follow answers with what comes before, and then with what source gives by a lane.
// It returns what the lane ended with, and fails the test if there was none.
func follow(t *testing.T, w http.ResponseWriter, r *http.Request, before string, source func(l *Lane) Source) error {
	l := Open(r.Context(), wrapped{w})
	if l == nil {
		t.Error("there is no lane")
		return nil
	}
	w.WriteHeader(http.StatusOK)
	if _, err := io.WriteString(w, before); err != nil {
		t.Error(err)
	}
	w.(http.Flusher).Flush()
	buffer := l.buffer
	if buffer == nil {
		t.Error("the answer's buffer is not known")
		return l.Close()
	}
	l.Follow(source(l), int64(len(before)), laneLimit)
	if n := buffer.Size(); n > 0 {
		t.Errorf("an answer that a lane sends has a buffer of %d bytes", n)
	}
	select {
	case <-l.Done():
	case <-r.Context().Done():
	}
	return l.Close()
}

// laneLimit is how long clients may be slow, unless that is tested.
var laneLimit = wait.Patience

// TestLanesOfOneConnectionComeWhole, each after what its handler has written, beside
// ordinary answers.
func TestLanesOfOneConnectionComeWhole(t *testing.T) {
	const lanes, parts = 30, 100
	text := func(lane string, part int) string { return strings.Repeat(lane+" ", 1+part*part*part%9973) }
	url, client, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.URL.Path[1:]
		if name == "short" {
			_, _ = io.WriteString(w, strings.Repeat("x", 100_000))
			return
		}
		err := follow(t, w, r, strings.Repeat("first ", len(name)*1000), func(l *Lane) Source {
			part, turn := 0, false
			return func(dst []byte) ([]byte, error) {
				if turn = !turn; !turn { // something comes later
					time.AfterFunc(0, l.Wake)
					return dst, nil
				}
				if part++; part > parts {
					return append(dst, "end"...), io.EOF
				}
				return append(dst, text(name, part)...), nil
			}
		})
		if err != nil {
			t.Error(err)
		}
	}))
	var wg sync.WaitGroup
	for i := range lanes {
		wg.Go(func() {
			name := fmt.Sprint("lane-", i)
			var want strings.Builder
			want.WriteString(strings.Repeat("first ", len(name)*1000))
			for part := range parts {
				want.WriteString(text(name, part+1))
			}
			want.WriteString("end")
			res, err := client.Get(url + "/" + name)
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if got, err := io.ReadAll(res.Body); err != nil || string(got) != want.String() {
				t.Errorf("%s: got %d bytes, %v, want %d", name, len(got), err, want.Len())
			}
		})
		wg.Go(func() {
			res, err := client.Get(url + "/short")
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			if n, err := io.Copy(io.Discard, res.Body); n != 100_000 || err != nil {
				t.Errorf("an ordinary answer: got %d bytes, %v", n, err)
			}
		})
	}
	wg.Wait()
}

// peer is a client that grants windows as it likes, and holds the server to them.
type peer struct {
	*http2.Framer
	conn    *tls.Conn
	windows map[uint32]int
	first   int
	got     map[uint32]*bytes.Buffer
	ended   map[uint32]http2.FrameType // by what; data is the zero value
}

// newPeer connects to url; first and connection are the windows that it begins with.
func newPeer(t *testing.T, url string, first, connection int) *peer {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetReadDeadline(time.Now().Add(wait.Patience)))
	p := &peer{
		Framer: http2.NewFramer(conn, conn), conn: conn, first: first, windows: map[uint32]int{0: firstWindow},
		got: map[uint32]*bytes.Buffer{}, ended: map[uint32]http2.FrameType{},
	}
	_, err = io.WriteString(conn, http2.ClientPreface)
	check(t, err)
	check(t, p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(first)}))
	if connection > firstWindow {
		p.grant(t, 0, connection-firstWindow)
	}
	return p
}

func (p *peer) grant(t *testing.T, stream uint32, n int) {
	t.Helper()
	p.windows[stream] += n
	check(t, p.WriteWindowUpdate(stream, uint32(n)))
}

// resize changes the windows of all streams.
func (p *peer) resize(t *testing.T, first int) {
	t.Helper()
	for stream := range p.got {
		p.windows[stream] += first - p.first
	}
	p.first = first
	check(t, p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(first)}))
}

// get asks for "/x" on a stream, where x is a letter.
func (p *peer) get(t *testing.T, stream uint32, path string) {
	t.Helper()
	p.windows[stream], p.got[stream] = p.first, &bytes.Buffer{}
	block := append([]byte("\x82\x87\x04"), byte(len(path)))
	block = append(append(block, path...), "\x41\x01x"...)
	check(t, p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block, EndStream: true, EndHeaders: true}))
}

// over says whether a stream has ended, in whatever way.
func (p *peer) over(stream uint32) bool {
	_, over := p.ended[stream]
	return over
}

// read reads frames until it has enough, and minds the windows.
func (p *peer) read(t *testing.T, enough func() bool) {
	t.Helper()
	for !enough() {
		frame, err := p.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		h := frame.Header()
		if p.over(h.StreamID) {
			t.Fatalf("got %v after the end of its stream", h)
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			p.windows[0] -= len(f.Data())
			if p.windows[h.StreamID] -= len(f.Data()); len(f.Data()) > 0 && (p.windows[h.StreamID] < 0 || p.windows[0] < 0) {
				t.Fatalf("got more than the window of stream %d: %v", h.StreamID, p.windows)
			}
			p.got[h.StreamID].Write(f.Data())
			if f.StreamEnded() {
				p.ended[h.StreamID] = http2.FrameData
			}
		case *http2.RSTStreamFrame:
			p.ended[h.StreamID] = http2.FrameRSTStream
		case *http2.GoAwayFrame:
			t.Fatalf("got %v", f)
		}
	}
}

// numbers gives 1,000 numbers a time, until stop is set.
func numbers(stop *atomic.Bool) func(l *Lane) Source {
	return func(*Lane) Source {
		n := 0
		return func(dst []byte) ([]byte, error) {
			if stop.Load() {
				return dst, io.EOF
			}
			for range 1000 {
				n++
				dst = fmt.Appendf(dst, "%d ", n)
			}
			return dst, nil
		}
	}
}

// checkNumbers checks that text has what numbers gives, to wherever it was cut.
func checkNumbers(t *testing.T, text string) {
	t.Helper()
	var want []byte
	for n := 1; len(want) < len(text); n++ {
		want = fmt.Appendf(want, "%d ", n)
	}
	if text != string(want[:len(text)]) {
		t.Errorf("got %d bytes that are not the numbers in their order", len(text))
	}
}

// TestLaneWithoutAWindowHoldsUpNoOther: one whose client takes nothing more waits, and
// goes on where it was when it may, while others of its connection go on.
func TestLaneWithoutAWindowHoldsUpNoOther(t *testing.T) {
	var stop atomic.Bool
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := follow(t, w, r, "", numbers(&stop)); err != nil {
			t.Error(err)
		}
	}))
	p := newPeer(t, url, 1000, 4<<20)
	p.get(t, 1, "/stalled")
	p.get(t, 3, "/fast")
	p.get(t, 5, "/slow")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	p.read(t, func() bool { return p.got[1].Len() == 1000 && p.got[3].Len() == 1000 && p.got[5].Len() == 1000 })
	for range 50 {
		n := 1 + rnd.IntN(100_000)
		p.grant(t, 3, n)
		p.grant(t, 5, 1+n%100)
		p.grant(t, 0, n+1+n%100)
		p.read(t, func() bool { return p.windows[3] == 0 && p.windows[5] == 0 })
	}
	if got := p.got[1].Len(); got != 1000 {
		t.Errorf("the stalled stream got %d bytes, want 1000", got)
	}
	p.grant(t, 1, 50_000)
	p.read(t, func() bool { return p.windows[1] == 0 })
	p.resize(t, 500) // windows are below zero now
	p.grant(t, 1, 400)
	p.resize(t, 700)
	p.read(t, func() bool { return p.windows[1] == 100 || p.windows[1] == 0 })
	p.resize(t, 9000)
	p.read(t, func() bool { return p.windows[1] == 0 && p.windows[3] == 0 && p.windows[5] == 0 })
	stop.Store(true)
	for _, stream := range []uint32{1, 3, 5} { // what was begun must be taken for an end
		p.grant(t, stream, 1<<20)
	}
	p.read(t, func() bool { return len(p.ended) == 3 })
	for _, stream := range []uint32{1, 3, 5} {
		checkNumbers(t, p.got[stream].String())
		if p.ended[stream] != http2.FrameData {
			t.Errorf("stream %d ended by %v, want the end of its data", stream, p.ended[stream])
		}
	}
}

// TestLaneBeginsAfterMuchThatTheHandlerHasWritten, for which the client has to open
// the window again and again.
func TestLaneBeginsAfterMuchThatTheHandlerHasWritten(t *testing.T) {
	before := strings.Repeat("before ", 30_000)
	var stop atomic.Bool
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := follow(t, w, r, before, numbers(&stop)); err != nil {
			t.Error(err)
		}
	}))
	p := newPeer(t, url, 1000, 4<<20)
	p.get(t, 1, "/")
	for p.got[1].Len() < 2*len(before) {
		p.read(t, func() bool { return p.windows[1] == 0 })
		p.grant(t, 1, 7000)
		p.grant(t, 0, 7000)
	}
	stop.Store(true)
	p.grant(t, 1, 1<<20)
	p.read(t, func() bool { return p.over(1) })
	after, whole := strings.CutPrefix(p.got[1].String(), before)
	if !whole {
		t.Error("what the handler wrote does not come first")
	}
	checkNumbers(t, after)
}

// TestLanesShareTheWindowOfTheirConnection with ordinary answers: neither takes from
// the other what it needs, nor more than there is.
func TestLanesShareTheWindowOfTheirConnection(t *testing.T) {
	var stop atomic.Bool
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ordinary" {
			for !stop.Load() {
				if _, err := w.Write(make([]byte, 5000)); err != nil {
					return
				}
			}
			return
		}
		if err := follow(t, w, r, "", numbers(&stop)); err != nil {
			t.Error(err)
		}
	}))
	const whole = 400_000
	p := newPeer(t, url, 1<<30, whole)
	p.get(t, 1, "/lane")
	p.get(t, 3, "/ordinary")
	p.read(t, func() bool { return p.windows[0] == 0 })
	for p.got[1].Len() < 2*whole || p.got[3].Len() < 2*whole {
		p.grant(t, 0, 60_000) // half of it is more than is held back
		p.read(t, func() bool { return p.windows[0] == 0 })
	}
	stop.Store(true)
	p.grant(t, 0, 1<<20)
	p.read(t, func() bool { return len(p.ended) == 2 })
	checkNumbers(t, p.got[1].String())
}

// TestClientsThatGrantAtHalfAWindowAreServedToTheEnd, as many libraries do: by lanes
// alone, by ordinary answers alone, and by both in turn.
func TestClientsThatGrantAtHalfAWindowAreServedToTheEnd(t *testing.T) {
	const whole = 400_000
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ordinary" {
			_, _ = w.Write(make([]byte, 2*whole))
			return
		}
		var stop atomic.Bool
		if err := follow(t, w, r, "", func(l *Lane) Source {
			inner, size := numbers(&stop)(l), 0
			return func(dst []byte) ([]byte, error) {
				had := len(dst)
				dst, err := inner(dst)
				size += len(dst) - had
				stop.Store(size > 2*whole)
				return dst, err
			}
		}); err != nil {
			t.Error(err)
		}
	}))
	p := newPeer(t, url, 1<<30, whole)
	for i, path := range []string{"/lane", "/ordinary", "/lane", "/lane", "/ordinary", "/ordinary"} {
		stream := uint32(2*i + 1)
		p.get(t, stream, path)
		for !p.over(stream) {
			p.read(t, func() bool { return p.over(stream) || p.windows[0] <= whole/2 })
			if used := whole - p.windows[0]; used >= whole/2 {
				p.grant(t, 0, used)
			}
		}
	}
}

// TestHalfAWindowIsForLanes whatever is granted and used, in any order.
func TestHalfAWindowIsForLanes(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var s lanes
		s.init(nil, func() {})
		whole := int64(firstWindow) + 2*firstWindow + rnd.Int64N(1<<20)
		s.update(windowUpdate{bytes: uint32(whole - firstWindow)}, false)
		used := int64(0) // since the client has granted more
		for range 100 {
			n := rnd.Int64N(whole)
			if lane := rnd.IntN(2) == 0; lane {
				n = min(n, s.mu.ours)
				s.mu.ours -= n
			} else {
				n = min(n, s.mu.theirs)
				s.wrote(head{kind: dataFrame, stream: 1, size: int(n)})
			}
			used += n
			if granted := used - rnd.Int64N(1+used/2); used >= whole/2 {
				s.update(windowUpdate{bytes: uint32(granted)}, true)
				used -= granted
			}
			if most := (whole + 1) / 2; s.mu.ours > most || s.mu.theirs > most || s.mu.ours+s.mu.theirs+used != whole {
				t.Fatalf("seed %d: lanes have %d and the server %d, of %d and %d used", seed, s.mu.ours, s.mu.theirs, whole, used)
			}
		}
	}
}

// TestLaneHasWhatItsStreamWasGrantedBefore it was opened.
func TestLaneHasWhatItsStreamWasGrantedBefore(t *testing.T) {
	var stop atomic.Bool
	granted := make(chan struct{})
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/granted" {
			close(granted)
			return
		}
		<-granted
		if err := follow(t, w, r, "", numbers(&stop)); err != nil {
			t.Error(err)
		}
	}))
	p := newPeer(t, url, 1000, 4<<20)
	p.get(t, 1, "/")
	p.grant(t, 1, 50_000)
	p.get(t, 3, "/granted")
	p.read(t, func() bool { return p.windows[1] == 0 })
	stop.Store(true)
	p.grant(t, 1, 1<<20)
	p.read(t, func() bool { return p.over(1) })
	checkNumbers(t, p.got[1].String())
}

// TestLaneOfASlowClientIsGivenUp, also if it takes a little now and then.
func TestLaneOfASlowClientIsGivenUp(t *testing.T) {
	var stop atomic.Bool
	ends := make(chan error, 1)
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l := Open(r.Context(), w)
		out := timeouts.NewStream(w, time.Minute)
		if err := out.Flush(); err != nil {
			t.Error(err)
		}
		l.Follow(numbers(&stop)(l), 0, 300*time.Millisecond)
		<-l.Done()
		ends <- l.Close()
		out.Reset()
	}))
	p := newPeer(t, url, 1000, 4<<20)
	p.get(t, 1, "/")
	p.read(t, func() bool { return p.windows[1] == 0 })
	over := time.After(wait.Patience)
	for {
		p.grant(t, 1, 1)
		select {
		case err := <-ends:
			if !errors.Is(err, ErrSlow) {
				t.Errorf("got %v, want %v", err, ErrSlow)
			}
			p.read(t, func() bool { return p.ended[1] == http2.FrameRSTStream })
			return
		case <-time.After(10 * time.Millisecond):
		case <-over:
			t.Fatal("the lane goes on")
		}
	}
}

// TestLaneEndsWithItsStreamOrConnection: its source is not called any more.
func TestLaneEndsWithItsStreamOrConnection(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *peer){
		"stream that the client has reset": func(t *testing.T, p *peer) { check(t, p.WriteRSTStream(1, http2.ErrCodeCancel)) },
		"connection that is cut":           func(t *testing.T, p *peer) { check(t, p.conn.NetConn().Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			var never, closed atomic.Bool
			done := make(chan struct{})
			url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = follow(t, w, r, "before ", func(l *Lane) Source {
					inner := numbers(&never)(l)
					return func(dst []byte) ([]byte, error) {
						if closed.Load() {
							t.Error("the source is called after Close")
						}
						return inner(dst)
					}
				})
				closed.Store(true)
				close(done)
			}))
			p := newPeer(t, url, 100_000, 4<<20)
			p.get(t, 1, "/")
			p.read(t, func() bool { return p.got[1].Len() > 10_000 })
			end(t, p)
			select {
			case <-done:
			case <-time.After(wait.Patience):
				t.Fatal("the handler goes on")
			}
		})
	}
}

// TestLaneThatIsClosedWithinAPartIsNotWhole, and the handler knows.
func TestLaneThatIsClosedWithinAPartIsNotWhole(t *testing.T) {
	var stop atomic.Bool
	stalled, stall := context.WithCancel(t.Context())
	defer stall()
	ends := make(chan error, 1)
	url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(stalled, cancel)()
		ends <- follow(t, w, r.WithContext(ctx), "", numbers(&stop))
	}))
	p := newPeer(t, url, 1000, 4<<20)
	p.get(t, 1, "/")
	p.read(t, func() bool { return p.windows[1] == 0 })
	stall()
	if err := <-ends; err == nil {
		t.Error("got no error, want one")
	}
}

// TestLanesAreRemindedAtOnce, whenever they began, and nobody is woken for those that have ended.
func TestLanesAreRemindedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 8
		var s lanes
		var wakes atomic.Int64
		s.init(nil, func() { wakes.Add(1) })
		s.mu.shared, s.mu.ours = true, 1<<20
		defer s.close()
		filled := func() (lanes int) {
			wakes.Store(0)
			return strings.Count(s.fill(new(bytes.Buffer)).String(), "reminded")
		}
		var open []*Lane
		for i := range many {
			l := s.add(uint32(2*i + 1))
			l.begun = true
			l.Remind(time.Minute)
			l.Follow(func(dst []byte) ([]byte, error) {
				if l.Reminded() {
					dst = append(dst, "reminded"...)
				}
				return dst, nil
			}, 0, laneLimit)
			open = append(open, l)
			time.Sleep(time.Second)
		}
		if n := filled(); n != 0 {
			t.Errorf("%d of %d lanes were reminded at once", n, many)
		}
		for _, left := range []int{many, many, 1, 0, 0} {
			for _, l := range open[left:] {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
			open = open[:left]
			time.Sleep(time.Minute)
			woken := wakes.Load()
			if n := filled(); n != left || woken != int64(min(left, 1)) {
				t.Errorf("in a minute %d of %d lanes were reminded, by %d calls", n, left, woken)
			}
		}
		l := s.add(99)
		l.Remind(time.Minute)
		time.Sleep(time.Minute + time.Second)
		if !l.Reminded() {
			t.Error("a lane after all others have ended was not reminded")
		}
	})
}

func TestNoLaneWithoutRoomOrHTTP2(t *testing.T) {
	lanes := make(chan *Lane, 1)
	url, client, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { lanes <- Open(r.Context(), w) }))
	p := newPeer(t, url, 1<<20, firstWindow)
	p.get(t, 1, "/")
	if <-lanes != nil {
		t.Error("a connection with the smallest window has a lane")
	}
	client.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	res, err := client.Get(url)
	check(t, err)
	res.Body.Close()
	if <-lanes != nil {
		t.Error("a connection of HTTP/1.1 has a lane")
	}
}

// TestWindowsThatGrowTooLargeEndTheConnection although the server knows of a part
// of them only.
func TestWindowsThatGrowTooLargeEndTheConnection(t *testing.T) {
	for _, stream := range []uint32{0, 1} {
		url, _, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var never atomic.Bool
			_ = follow(t, w, r, "", numbers(&never))
		}))
		p := newPeer(t, url, 1000, 1<<30)
		p.get(t, 1, "/")
		p.read(t, func() bool { return p.windows[1] == 0 })
		check(t, p.WriteWindowUpdate(stream, most31)) // whatever is sent between the two
		check(t, p.WriteWindowUpdate(stream, most31)) // whatever is sent between the two
		for {
			frame, err := p.ReadFrame()
			check(t, err)
			if away, ok := frame.(*http2.GoAwayFrame); ok && stream == 0 && away.ErrCode == http2.ErrCodeFlowControl {
				break
			}
			if reset, ok := frame.(*http2.RSTStreamFrame); ok && stream == 1 && reset.ErrCode == http2.ErrCodeFlowControl {
				break
			}
		}
	}
}

// TestOutboundFindsFramesInAnyPieces, and never takes the middle of one, or of a
// header block, for a place between frames.
func TestOutboundFindsFramesInAnyPieces(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var b bytes.Buffer
		f := http2.NewFramer(&b, nil)
		var want []uint32
		between := map[int]bool{0: true}
		for range 1 + rnd.IntN(30) {
			stream := 1 + rnd.Uint32N(1000)
			switch rnd.IntN(4) {
			case 0:
				check(t, f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 1+rnd.IntN(50))}))
				check(t, f.WriteContinuation(stream, true, make([]byte, rnd.IntN(50))))
				want = append(want, stream)
			case 1:
				check(t, f.WriteSettings())
				stream = 0
			default:
				check(t, f.WriteData(stream, rnd.IntN(2) == 0, make([]byte, rnd.IntN(100))))
			}
			want = append(want, stream)
			between[b.Len()] = true
		}
		var o outbound
		var got []uint32
		at := 0
		for rest := b.Bytes(); len(rest) > 0; {
			n := min(1+rnd.IntN(1+rnd.IntN(200)), len(rest))
			o.follow(rest[:n], func(h head) { got = append(got, h.stream) })
			rest, at = rest[n:], at+n
			if o.between() != between[at] {
				t.Fatalf("seed %d: after %d bytes: got between frames %v, want %v", seed, at, o.between(), between[at])
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: got frames of streams %v, want %v", seed, got, want)
		}
	}
}

func TestFramesAreAsLargeAsEveryClientTakes(t *testing.T) {
	for _, size := range []int{0, 1, frameMost - 1, frameMost, frameMost + 1, 2 * frameMost, 3*frameMost + 5} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i >> 8)
		}
		buf := append([]byte("before"), make([]byte, headSize)...)
		buf = framed(append(buf, content...), len("before")+headSize, 7)
		rest, whole := bytes.CutPrefix(buf, []byte("before"))
		f := http2.NewFramer(io.Discard, bytes.NewReader(rest))
		var got []byte
		for {
			frame, err := f.ReadFrame()
			if err == io.EOF {
				break
			}
			check(t, err)
			data := frame.(*http2.DataFrame)
			if data.StreamID != 7 || data.StreamEnded() || len(data.Data()) == 0 || len(data.Data()) > 16384 {
				t.Fatalf("%d bytes: got %v", size, data)
			}
			got = append(got, data.Data()...)
		}
		if !whole || !bytes.Equal(got, content) {
			t.Errorf("%d bytes: got %d others", size, len(got))
		}
	}
}
