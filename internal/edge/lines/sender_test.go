package lines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/test/serve"
)

// request is one as the edge makes them.
func request(t testing.TB, method string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://web.com/some/path?with=query", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["User-Agent"] = nil
	return r
}

// hear reads one request of a connection; empty: there is none any more.
func hear(c net.Conn) string {
	var heard []byte
	for buf := make([]byte, 4<<10); !bytes.HasSuffix(heard, []byte("\r\n\r\n")); {
		n, err := c.Read(buf)
		if heard = append(heard, buf[:n]...); err != nil {
			return ""
		}
	}
	return string(heard)
}

// dialer connects with a server, and counts.
type dialer struct {
	made atomic.Int32
	each func(c net.Conn)
}

// dial connects by a pipe.
func (d *dialer) dial(context.Context, string, string) (net.Conn, error) {
	d.made.Add(1)
	a, b := net.Pipe()
	go func() {
		defer b.Close()
		d.each(b)
	}()
	return a, nil
}

func newSender(t testing.TB, each func(c net.Conn)) (*Sender, *dialer) {
	d := &dialer{each: each}
	s := &Sender{Dial: d.dial, Idle: time.Minute, Most: 4, Header: 8 << 10}
	t.Cleanup(s.Close)
	return s, d
}

// all sends a request and reads the answer.
func all(s *Sender, r *http.Request) (*http.Response, string, error) {
	res, err := s.Send(r, "pod:80", time.Second)
	if err != nil {
		return nil, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res, string(text), err
}

const plainAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// outcome is what comes of a request.
type outcome struct {
	Status  int
	Header  http.Header
	Trailer http.Header
	Body    string
	Inform  []int
	Failed  bool // there was no answer
	Broken  bool // its body has no proper end
}

// outcomeOf is what comes of a request that is answered with some text, after which the connection is closed.
func outcomeOf(t testing.TB, method, answer string, of func(d *dialer) func(*http.Request) (*http.Response, error)) (o outcome) {
	d := &dialer{each: func(c net.Conn) {
		if hear(c) != "" {
			_, _ = io.WriteString(c, answer) // who has heard enough closes
		}
	}}
	r := request(t, method)
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		o.Inform = append(o.Inform, code)
		return nil
	}}))
	res, err := of(d)(r)
	if err != nil {
		o.Failed = true
		return o
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	o.Status, o.Header, o.Trailer, o.Body, o.Broken = res.StatusCode, res.Header, res.Trailer, string(text), err != nil
	return o
}

// sameAsLibrary fails unless what comes of an answer is what comes of it with [http.Transport].
func sameAsLibrary(t *testing.T, method, answer string) {
	t.Helper()
	got := outcomeOf(t, method, answer, func(d *dialer) func(*http.Request) (*http.Response, error) {
		s := &Sender{Dial: d.dial, Idle: time.Minute, Most: 4, Header: 8 << 10}
		t.Cleanup(s.Close)
		return func(r *http.Request) (*http.Response, error) { return s.Send(r, "pod:80", 5*time.Second) }
	})
	want := outcomeOf(t, method, answer, func(d *dialer) func(*http.Request) (*http.Response, error) {
		l := &http.Transport{DialContext: d.dial, DisableCompression: true, MaxResponseHeaderBytes: 8 << 10}
		t.Cleanup(l.CloseIdleConnections)
		return l.RoundTrip
	})
	// The library hands on what nobody has asked for, and what no client is to see.
	if !want.Failed && (want.Status == http.StatusSwitchingProtocols || want.Status < http.StatusContinue) {
		want = outcome{Failed: true, Inform: want.Inform}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("of %q got\n%+v, want, as the library has it,\n%+v", answer, got, want)
	}
}

var answers = map[string]string{
	"a length":                   plainAnswer,
	"no body":                    "HTTP/1.1 204 No Content\r\n\r\n",
	"nothing new":                "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\nEtag: x\r\n\r\n",
	"until the end":              "HTTP/1.1 200 OK\r\n\r\nall of it",
	"HTTP 1.0":                   "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"chunks":                     "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n1\r\n!\r\n0\r\n\r\n",
	"chunks and trailers":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Sum\r\n\r\n2\r\nok\r\n0\r\nSum: 9\r\n\r\n",
	"broken chunks":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n",
	"chunks and a length":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"an encoding nobody knows":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	"two lengths":                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nokk",
	"the same length twice":      "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
	"a length below nothing":     "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
	"less than the length":       "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nok",
	"more than the length":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
	"words before":               "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + plainAnswer,
	"go on":                      "HTTP/1.1 100 Continue\r\n\r\n" + plainAnswer,
	"another protocol":           "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\nhello",
	"a status that is none":      "HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok",
	"nothing at all":             "",
	"half a header":              "HTTP/1.1 200 OK\r\nContent-Le",
	"no HTTP":                    "SSH-2.0-OpenSSH_9.2\r\n",
	"a header without an end":    "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 20<<10) + "\r\n\r\n",
	"a header that goes on":      "HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nok",
	"a blank before the colon":   "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
	"lines that end otherwise":   "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
	"a body that is large":       "HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + strings.Repeat("x", 50000),
	"it closes and has a length": "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
}

func TestAnswersAreReadAsTheLibraryReadsThem(t *testing.T) {
	for name, answer := range answers {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost} {
			t.Run(method+" "+name, func(t *testing.T) { sameAsLibrary(t, method, answer) })
		}
	}
}

func FuzzAnswersAreReadAsTheLibraryReadsThem(f *testing.F) {
	for _, answer := range answers {
		f.Add(answer, true)
		f.Add(answer, false)
	}
	f.Fuzz(func(t *testing.T, answer string, head bool) {
		method := http.MethodGet
		if head {
			method = http.MethodHead
		}
		sameAsLibrary(t, method, answer)
	})
}

func TestConnectionIsKeptIfTheAnswerIsWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		answer string
		method string
		kept   bool
	}{
		"a length":            {plainAnswer, http.MethodGet, true},
		"chunks":              {answers["chunks and trailers"], http.MethodGet, true},
		"no body":             {answers["no body"], http.MethodGet, true},
		"a head":              {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", http.MethodHead, true},
		"a head with a body":  {plainAnswer, http.MethodHead, false},
		"it is to be closed":  {answers["it closes and has a length"], http.MethodGet, false},
		"HTTP 1.0":            {answers["HTTP 1.0"], http.MethodGet, false},
		"something follows":   {answers["more than the length"], http.MethodGet, false},
		"two answers":         {plainAnswer + plainAnswer, http.MethodGet, false},
		"chunks and the like": {answers["chunks"] + "0\r\n\r\n", http.MethodGet, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newSender(t, func(c net.Conn) {
				for hear(c) != "" {
					_, _ = io.WriteString(c, tc.answer) // an end that has gone is heard of
				}
			})
			for i := range 3 {
				if _, _, err := all(s, request(t, tc.method)); err != nil {
					t.Fatalf("request %d: %v", i, err)
				}
			}
			if want := map[bool]int32{true: 1, false: 3}[tc.kept]; d.made.Load() != want {
				t.Errorf("got %d connections for 3 requests, want %d", d.made.Load(), want)
			}
		})
	}
}

func TestConnectionOfAnAnswerThatNobodyHasReadIsNotKept(t *testing.T) {
	s, d := newSender(t, func(c net.Conn) {
		for hear(c) != "" {
			_, _ = io.WriteString(c, answers["a body that is large"]) // nobody reads all of it
		}
	})
	for range 2 {
		res, err := s.Send(request(t, http.MethodGet), "pod:80", time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if n, err := res.Body.Read(make([]byte, 10)); n != 0 || err == nil {
			t.Errorf("got %d bytes, %v of a body that is closed", n, err)
		}
	}
	if got := d.made.Load(); got != 2 {
		t.Errorf("got %d connections, want 2", got)
	}
}

// forgetful answers the first request of a connection, and closes it when the second has come.
func forgetful(heard *atomic.Int32) func(net.Conn) {
	return func(c net.Conn) {
		if hear(c) == "" {
			return
		}
		heard.Add(1)
		_, _ = io.WriteString(c, plainAnswer) // as above
		if hear(c) != "" {
			heard.Add(1)
		}
	}
}

func TestOnlyWhatDoesNoHarmIsSentAgain(t *testing.T) {
	for _, tc := range []struct {
		method string
		key    string
		again  bool
	}{{http.MethodGet, "", true}, {http.MethodHead, "", true}, {http.MethodOptions, "", true}, {http.MethodPost, "", false}, {http.MethodDelete, "", false}, {http.MethodPost, "7", true}} {
		t.Run(tc.method+tc.key, func(t *testing.T) {
			var heard atomic.Int32
			s, d := newSender(t, forgetful(&heard))
			if _, _, err := all(s, request(t, http.MethodGet)); err != nil {
				t.Fatal(err)
			}
			r := request(t, tc.method)
			if tc.key != "" {
				r.Header.Set("Idempotency-Key", tc.key)
			}
			_, _, err := all(s, r)
			if (err == nil) != tc.again {
				t.Errorf("got %v, want an answer: %v", err, tc.again)
			}
			if want := map[bool]int32{true: 2, false: 1}[tc.again]; d.made.Load() != want {
				t.Errorf("got %d connections, want %d", d.made.Load(), want)
			}
			if want := map[bool]int32{true: 3, false: 2}[tc.again]; heard.Load() != want {
				t.Errorf("%d requests were heard, want %d", heard.Load(), want)
			}
		})
	}
}

func TestNewConnectionThatIsClosedIsNotTriedAgain(t *testing.T) {
	s, d := newSender(t, func(c net.Conn) { hear(c) })
	if _, _, err := all(s, request(t, http.MethodGet)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want that there was no answer", err)
	}
	if got := d.made.Load(); got != 1 {
		t.Errorf("got %d connections, want 1", got)
	}
}

func TestConnectionThatWasClosedOrSaidMoreIsNotUsed(t *testing.T) {
	for _, tc := range []struct{ name, late string }{{"closed", ""}, {"said more", "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\n\r\n"}} {
		t.Run(tc.name, func(t *testing.T) {
			said := make(chan struct{})
			at := serve.TCP(t, func(c net.Conn) {
				hear(c)
				_, _ = io.WriteString(c, plainAnswer) // as above
				<-said
				_, _ = io.WriteString(c, tc.late)
			})
			var made []net.Conn
			s := &Sender{Most: 4, Idle: time.Minute, Header: 8 << 10, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, at)
				made = append(made, c)
				return c, err
			}}
			defer s.Close()
			if _, _, err := all(s, request(t, http.MethodPost)); err != nil {
				t.Fatal(err)
			}
			kept := s.kept.take("pod:80")
			if kept == nil || !kept.quiet() {
				t.Fatal("the connection is not kept, or not quiet")
			}
			s.keep(kept)
			close(said)
			_ = made[0].SetReadDeadline(time.Time{})
			raw, err := made[0].(*net.TCPConn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			if err := raw.Read(func(uintptr) bool { return !kept.quiet() }); err != nil { // until the kernel has heard of it
				t.Fatal(err)
			}
			if _, text, err := all(s, request(t, http.MethodPost)); err != nil || text != "ok" {
				t.Errorf("got %q, %v, want ok by a new connection", text, err)
			}
			if len(made) != 2 {
				t.Errorf("got %d connections, want 2", len(made))
			}
		})
	}
}

func TestWhoIsSilentIsNotWaitedFor(t *testing.T) {
	for name, said := range map[string]string{"at once": "", "in the header": "HTTP/1.1 200 OK\r\n", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over := make(chan struct{})
				s, d := newSender(t, func(c net.Conn) {
					hear(c)
					_, _ = io.WriteString(c, said) // as above
					<-over
				})
				began := time.Now()
				if _, _, err := all(s, request(t, http.MethodGet)); !errors.Is(err, ErrSilent) {
					t.Errorf("got %v, want that the other side is silent", err)
				}
				if took := time.Since(began); took < 900*time.Millisecond || took > 1100*time.Millisecond {
					t.Errorf("it took %v, want a second", took)
				}
				if got := d.made.Load(); got != 1 {
					t.Errorf("got %d connections, want 1", got)
				}
				close(over)
			})
		})
	}
}

func TestWhoIsSlowButNotSilentIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSender(t, func(c net.Conn) {
			hear(c)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n") // as above
			for range 5 {
				time.Sleep(700 * time.Millisecond)
				_, _ = io.WriteString(c, "x") // as above
			}
		})
		if _, text, err := all(s, request(t, http.MethodGet)); err != nil || text != "xxxxx" {
			t.Errorf("got %q, %v, want all five", text, err)
		}
	})
}

func TestConnectingTakesNoLongerThanTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Sender{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
		}}
		if _, _, err := all(s, request(t, http.MethodGet)); !errors.Is(err, ErrSilent) {
			t.Errorf("got %v, want that the other side is silent", err)
		}
	})
}

func TestRequestThatIsOverEndsTheWait(t *testing.T) {
	for name, said := range map[string]string{"at once": "", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("the client has gone")
			gone := make(chan bool, 1)
			s, _ := newSender(t, func(c net.Conn) {
				hear(c)
				_, _ = io.WriteString(c, said) // as above
				cancel(why)
				gone <- hear(c) == ""
			})
			if _, _, err := all(s, request(t, http.MethodGet).WithContext(ctx)); !errors.Is(err, why) {
				t.Errorf("got %v, want %v", err, why)
			}
			if !<-gone {
				t.Error("the connection goes on")
			}
			if c := s.kept.take("pod:80"); c != nil {
				t.Error("the connection is kept")
			}
		})
	}
}

func TestConnectionsAreKeptForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := atomic.Int32{}
		s, d := newSender(t, func(c net.Conn) {
			open.Add(1)
			defer open.Add(-1)
			for hear(c) != "" {
				_, _ = io.WriteString(c, plainAnswer) // as above
			}
		})
		together := func(n int) {
			t.Helper()
			var list []*http.Response
			for range n {
				res, err := s.Send(request(t, http.MethodGet), "pod:80", time.Second)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, res)
			}
			for _, res := range list {
				_, _ = io.Copy(io.Discard, res.Body) // its end is looked at elsewhere
				res.Body.Close()
			}
			synctest.Wait()
		}
		want := func(n int32, when string) {
			t.Helper()
			if got := open.Load(); got != n {
				t.Errorf("%s: got %d connections, want %d", when, got, n)
			}
		}
		together(6)
		want(4, "after six at a time, of which four are kept")
		time.Sleep(50 * time.Second)
		together(1)
		time.Sleep(50 * time.Second)
		want(1, "when three are old")
		together(1)
		if got := d.made.Load(); got != 6 {
			t.Errorf("got %d connections in all, want 6", got)
		}
		time.Sleep(2 * time.Minute)
		want(0, "when all are old")
		if s.kept.mu.timer != nil || len(s.kept.mu.of) != 0 {
			t.Error("something is left where nothing is kept")
		}
		together(2)
		s.Forget("pod:80")
		synctest.Wait()
		want(0, "when the address has gone")
		together(2)
		s.Close()
		synctest.Wait()
		want(0, "after the end")
		together(1)
		want(0, "after one more")
	})
}

func TestWhatIsUnusualIsLeftToOthers(t *testing.T) {
	for name, change := range map[string]func(r *http.Request){
		"a body":                func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), 1 },
		"a body without length": func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(strings.NewReader("x")), -1 },
		"a body in chunks":      func(r *http.Request) { r.TransferEncoding = []string{"chunked"} },
		"an upgrade": func(r *http.Request) {
			r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
		},
		"expectations":           func(r *http.Request) { r.Header.Set("Expect", "100-continue") },
		"trailers":               func(r *http.Request) { r.Trailer = http.Header{"A": nil} },
		"a header of trailers":   func(r *http.Request) { r.Header.Set("Trailer", "A") },
		"a length in the header": func(r *http.Request) { r.Header.Set("Transfer-Encoding", "chunked") },
		"a line in a value":      func(r *http.Request) { r.Header["A"] = []string{"b\r\nC: d"} },
		"a line in a name":       func(r *http.Request) { r.Header["A: b\r\nC"] = []string{"d"} },
		"a name with a blank":    func(r *http.Request) { r.Header["Content-Length "] = []string{"5"} },
		"an empty name":          func(r *http.Request) { r.Header[""] = []string{"5"} },
		"a line in the host":     func(r *http.Request) { r.Host = "a\r\nb: c" },
		"a host of letters":      func(r *http.Request) { r.Host = "bücher.com" },
		"a line in the query":    func(r *http.Request) { r.URL.RawQuery = "a HTTP/1.1\r\nb: c" },
		"a path that is none":    func(r *http.Request) { r.URL.Opaque = "example.com:80" },
		"a method of its own":    func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nA:" },
		"a tunnel":               func(r *http.Request) { r.Method = http.MethodConnect },
		"it ends the connection": func(r *http.Request) { r.Close = true },
	} {
		t.Run(name, func(t *testing.T) {
			s, d := newSender(t, func(c net.Conn) { hear(c) })
			r := request(t, http.MethodGet)
			change(r)
			if _, err := s.Send(r, "pod:80", time.Second); !errors.Is(err, ErrUnusual) {
				t.Errorf("got %v, want that it is unusual", err)
			}
			if d.made.Load() != 0 {
				t.Error("there was a connection")
			}
		})
	}
}

func TestRequestIsSentWhole(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
		var heard string
		s, _ := newSender(t, func(c net.Conn) {
			heard = hear(c)
			_, _ = io.WriteString(c, plainAnswer) // as above
		})
		r := request(t, method)
		r.Host = "asked.com:8080"
		r.Header["X-A"] = []string{" b ", "c"}
		r.Header["Content-Length"] = []string{"7"}
		if _, _, err := all(s, r); err != nil {
			t.Fatal(err)
		}
		length := ""
		if method == http.MethodPost {
			length = "Content-Length: 0\r\n"
		}
		want := fmt.Sprintf("%s /some/path?with=query HTTP/1.1\r\nHost: asked.com:8080\r\n%sX-A: b\r\nX-A: c\r\n\r\n", method, length)
		if heard != want {
			t.Errorf("got %q, want %q", heard, want)
		}
	}
}
