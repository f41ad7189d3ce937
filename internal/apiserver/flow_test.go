package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/budget"
	"github.com/kemudi/kemudi/internal/apiserver/write"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/wait"
)

// crowd lets everybody in who names themselves in the header From, with groups of
// the header Groups; "nobody" may do nothing. came gets one for each who came in.
func crowd(came chan struct{}) func(o *Options) {
	return func(o *Options) {
		o.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			if came != nil {
				came <- struct{}{}
			}
			return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("From"), Groups: append(r.Header.Values("Groups"), user.AllAuthenticated)}}, true, nil
		})
		o.Authorizer = authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetUser().GetName() == "nobody" {
				return authorizer.DecisionNoOpinion, "", nil
			}
			return authorizer.DecisionAllow, "", nil
		})
	}
}

// serveTLS serves over TLS, as the product does, until the test ends.
func (f *fixture) serveTLS() (addr string) {
	f.tb.Helper()
	f.url() // lends its certificate
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.tb.Context())
	g := task.NewGroup(ctx)
	g.Go("serve", func(ctx context.Context) error {
		return f.Serve(ctx, l, &tls.Config{Certificates: f.http.TLS.Certificates})
	})
	f.tb.Cleanup(func() {
		cancel()
		if err := g.Wait(); err != nil {
			f.tb.Error(err)
		}
	})
	return l.Addr().String()
}

// over runs a test once over HTTP/1.1 and once over HTTP/2.
func over(t *testing.T, test func(t *testing.T, transport func(t *testing.T) *http.Transport)) {
	for _, http2 := range []bool{false, true} {
		t.Run(map[bool]string{false: "over HTTP/1.1", true: "over HTTP/2"}[http2], func(t *testing.T) {
			t.Parallel()
			test(t, func(t *testing.T) *http.Transport {
				tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: http2}
				t.Cleanup(tr.CloseIdleConnections)
				return tr
			})
		})
	}
}

// trickle is a body of which some bytes come, and no more until it is closed.
type trickle struct {
	io.Reader
	ctx context.Context
	end context.CancelFunc
}

func newTrickle(ctx context.Context, come io.Reader) io.ReadCloser {
	ctx, end := context.WithCancel(ctx)
	return trickle{come, ctx, end}
}

func (b trickle) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return n, err
}

func (b trickle) Close() error {
	b.end()
	return nil
}

func trickled(ctx context.Context, method, url, come string, announced int64) *http.Request {
	r, err := http.NewRequestWithContext(ctx, method, url, newTrickle(ctx, strings.NewReader(come)))
	if err != nil {
		panic(err)
	}
	r.ContentLength = announced
	r.Header.Set("Content-Type", "application/json")
	return r
}

// TestTrickledBodiesHoldUpNobody: what others do goes through at once, however many
// bodies are announced, of whatever size, by those who may and those who may not.
func TestTrickledBodiesHoldUpNobody(t *testing.T) {
	const lease = `{"metadata":{"name":"n1"},"spec":{"holderIdentity":"n1"}}`
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	over(t, func(t *testing.T, transport func(t *testing.T) *http.Transport) {
		for _, c := range []struct {
			from, method string
			many         int
			announced    int64
		}{
			{"nobody", "POST", 260, 100_000},
			{"eve", "POST", 260, 100_000},
			{"eve", "GET", 460, 100_000},
			{"eve", "PATCH", 62, 3 << 20},
			{"eve", "DELETE", 62, -1},
		} {
			t.Run(fmt.Sprintf("%d %s of %d bytes from %s", c.many, c.method, c.announced, c.from), func(t *testing.T) {
				came := make(chan struct{}, 1000)
				f := newFixture(t, crowd(came))
				f.memory = budget.Of(func() int64 { return 100 << 20 }, func() int64 { return 20 << 20 })
				f.must(201, "POST", leases, lease, "From: n", "Groups: system:nodes")
				<-came
				base := "https://" + f.serveTLS()
				ctx, cancel := context.WithCancel(t.Context())
				var wg sync.WaitGroup
				defer wg.Wait()
				defer cancel()
				slow := transport(t)
				for range c.many { // one by one: handshakes have a deadline, too
					wg.Go(func() {
						r := trickled(ctx, c.method, base+mapsPath, "{", c.announced)
						r.Header.Set("From", c.from)
						if res, err := slow.RoundTrip(r); err == nil {
							// Who goes away may still be told that the body is not whole.
							if (res.StatusCode != http.StatusForbidden || c.from != "nobody") && ctx.Err() == nil {
								t.Errorf("%s: got %s", c.from, res.Status)
							}
							res.Body.Close()
						} else if c.from == "nobody" {
							t.Error("who may not: ", err)
						}
					})
					<-came
				}
				quick := &http.Client{Transport: transport(t), Timeout: wait.Patience}
				for _, ask := range []struct{ from, groups, method, path, body string }{
					{"system:node:n1", "system:nodes", "PATCH", leases + "/n1", `{"spec":{"renewTime":"2030-01-01T00:00:00.000000Z"}}`},
					{"admin", "system:masters", "POST", mapsPath, `{"metadata":{"name":"a"}}`},
					{"bob", "", "POST", mapsPath, `{"metadata":{"name":"b"}}`},
					{"admin", "system:masters", "GET", mapsPath, ""},
					{"bob", "", "GET", mapsPath, ""},
				} {
					r, err := http.NewRequestWithContext(t.Context(), ask.method, base+ask.path, strings.NewReader(ask.body))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("From", ask.from)
					r.Header.Set("Groups", ask.groups)
					if ask.method == "PATCH" {
						r.Header.Set("Content-Type", "application/merge-patch+json")
					}
					res, err := quick.Do(r)
					if err != nil {
						t.Fatalf("%s %s of %s: %v", ask.method, ask.path, ask.from, err)
					}
					body, err := io.ReadAll(res.Body)
					res.Body.Close()
					if err != nil || res.StatusCode >= 300 {
						t.Errorf("%s %s of %s: got %s %s %v", ask.method, ask.path, ask.from, res.Status, body, err)
					}
				}
				if c.from == "nobody" {
					wg.Wait() // they have been told
				}
			})
		}
	})
}

// TestBodiesOfOneFlowTakeHalfOfTheMemory, when nearly all of each has come.
func TestBodiesOfOneFlowTakeHalfOfTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, crowd(nil))
		f.memory = budget.Of(func() int64 { return 100 << 20 }, func() int64 { return 0 })
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		codes := map[int]int{}
		for range 62 {
			wg.Go(func() {
				r := httptest.NewRequestWithContext(ctx, "POST", mapsPath, newTrickle(ctx, bytes.NewReader(make([]byte, 2<<20))))
				r.ContentLength = 3 << 20
				r.Header.Set("From", "eve")
				w := httptest.NewRecorder()
				f.Handler().ServeHTTP(w, r)
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
			})
		}
		synctest.Wait()
		for range 10 {
			f.must(200, "GET", mapsPath, "", "From: bob")
		}
		f.must(201, "POST", mapsPath, cm, "From: bob")
		cancel()
		wg.Wait()
		if codes[http.StatusTooManyRequests] < 40 || codes[http.StatusBadRequest] < 10 || len(codes) != 2 {
			t.Errorf("got %v, want some that were let in and many that were refused", codes)
		}
		all := budget.Reservation{Budget: f.memory}
		if !all.Take(80 << 20) {
			t.Error("not all memory was given back")
		}
	})
}

// TestAHundredRequestsOfAUserWait, beside those that run, and are all served in the
// end; what is more is told to come again, and others are served at once.
func TestAHundredRequestsOfAUserWait(t *testing.T) {
	const run, queued, more = 15, 100, 5 // half of the 30 seats that her level has of 60; two queues of 50
	const slow = "/apis/of.another/v1/slow"
	over(t, func(t *testing.T, transport func(t *testing.T) *http.Transport) {
		entered, leave := make(chan struct{}, run+queued), make(chan struct{})
		f := newFixture(t, crowd(nil), func(o *Options) {
			o.RequestTimeout = 4 * time.Minute // of which they may wait one
			o.MaxReads, o.MaxWrites = 40, 20
			o.Aggregated = another(func(w http.ResponseWriter, r *http.Request) {
				entered <- struct{}{}
				<-leave
				http.NotFound(w, r)
			})
		})
		f.must(201, "POST", flowLevels, aLevel("low", 5, `{"type":"Queue","queuing":{"queues":8,"handSize":2,"queueLengthLimit":50}}`), "From: root")
		f.must(201, "POST", flowSchemas, aSchema("low", "low", 500, "eve"), "From: root")
		wait.Until(t, func() error {
			if f.ask("GET", mapsPath, "", "From: eve").Header().Get("X-Kubernetes-PF-FlowSchema-UID") == "" {
				return errors.New("the schema is not in force")
			}
			return nil
		})
		base := "https://" + f.serveTLS()
		c := &http.Client{Transport: transport(t), Timeout: 3 * time.Minute}
		ask := func(from, method, path, body string) (answer string) {
			r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return ""
			}
			r.Header.Set("From", from)
			res, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return ""
			}
			defer res.Body.Close()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Error(err)
			}
			return strings.TrimSpace(fmt.Sprint(res.StatusCode, " ", res.Header.Get("Retry-After")))
		}
		var wg sync.WaitGroup
		answers := make(chan string, run+queued+more)
		crowd := func(n int) {
			for range n {
				wg.Go(func() { answers <- ask("eve", "POST", slow, "{}") })
			}
		}
		crowd(run)
		for range run {
			<-entered
		}
		crowd(queued + more)
		for range more { // as long as all places are taken nobody else is answered
			if got := <-answers; got != "429 1" {
				t.Errorf("got %s, want 429 and to come again in a second", got)
			}
		}
		for name, want := range map[string]string{"bob": "201", "eve": "429 1"} {
			if got := ask(name, "POST", mapsPath, `{"metadata":{"name":"of-`+name+`"}}`); got != want {
				t.Errorf("a write of %s meanwhile: got %s, want %s", name, got, want)
			}
		}
		close(leave)
		wg.Wait()
		close(answers)
		served := 0
		for got := range answers {
			if served++; got != "404" {
				t.Errorf("got %s, want that it is served", got)
			}
		}
		if served != run+queued || len(entered) != queued {
			t.Errorf("got %d answers, %d of requests that had waited, want %d and %d", served, len(entered), run+queued, queued)
		}
	})
}

// TestTimeoutBoundsTheWholeRequest, whether it is the body that does not come or
// the server that is slow.
func TestTimeoutBoundsTheWholeRequest(t *testing.T) {
	over(t, func(t *testing.T, transport func(t *testing.T) *http.Transport) {
		f := newFixture(t, crowd(nil))
		base := "https://" + f.serveTLS()
		c := &http.Client{Transport: transport(t), Timeout: wait.Patience}
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET"} {
			r := trickled(t.Context(), method, base+mapsPath+"/x?timeout=100ms", "{", 100_000)
			if method == "PATCH" {
				r.Header.Set("Content-Type", "application/merge-patch+json")
			}
			r.Header.Set("From", "eve")
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(method, err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if want := `"message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout","details":{},"code":504`; err != nil ||
				res.StatusCode != http.StatusGatewayTimeout || !strings.Contains(string(body), want) {
				t.Errorf("%s: got %s %s %v, want %s", method, res.Status, body, err, want)
			}
		}
	})
	for _, c := range []struct {
		asked string
		want  time.Duration
	}{{"?timeout=2s", 2 * time.Second}, {"", time.Minute}, {"?timeout=0s", time.Minute}, {"?timeout=2h", time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture(t, func(o *Options) { o.Admission = stuck{} })
			start := time.Now()
			got := f.must(504, "POST", mapsPath+c.asked, cm)
			if want := `"message":"Timeout: request did not complete within requested timeout - context deadline exceeded"`; time.Since(start) != c.want || !strings.Contains(got, want) {
				t.Errorf("%s: got %s after %s, want %s after %s", c.asked, got, time.Since(start), want, c.want)
			}
		})
	}
}

// stuck is an admission that never answers.
type stuck struct{ write.NoAdmission }

func (stuck) Mutate(ctx context.Context, _ *admission.Attributes) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestClientsThatDoNotReadAreCutOff: their place, memory and goroutine are there
// for others again, also where an answer may go on for ever.
func TestClientsThatDoNotReadAreCutOff(t *testing.T) {
	const large = "/api/v1/namespaces/large/configmaps"
	st := newStore(t)
	maps := client.For(newFixture(t, func(o *Options) { o.Store = st }).As(admin, "filler"), core.ConfigMaps)
	for i := range 20 { // more than the kernel's buffers have room for
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i), Namespace: "large"}, Data: map[string]string{"a": strings.Repeat("x", 900<<10)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path string
		http2      bool
		window     uint32
	}{
		{"list over HTTP/1.1", large, false, 0},
		{"list over HTTP/2", large, true, 65535},
		{"list over HTTP/2 that fills the connection", large, true, 1 << 30},
		{"watch over HTTP/1.1", large + "?watch=1", false, 0},
		{"watch over HTTP/2", large + "?watch=1", true, 65535},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, crowd(nil), func(o *Options) {
				o.Store, o.RequestTimeout, o.MaxReads, o.MaxWrites = st, 2*time.Second, 1, 1
			})
			done, inner := make(chan string, 100), f.handler
			f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer func() {
					if r.Header.Get("From") == "eve" {
						done <- r.URL.RequestURI()
					}
				}()
				inner.ServeHTTP(w, r)
			})
			f.memory = budget.Of(func() int64 { return 100 << 20 }, func() int64 { return 0 })
			conn := dial(t, f.serveTLS(), c.http2)
			if c.http2 {
				get2(t, conn, c.path, c.window)
			} else if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nFrom: eve\r\n\r\n", c.path); err != nil {
				t.Fatal(err)
			}
			select {
			case path := <-done:
				if path != c.path {
					t.Errorf("got the end of %s, want that of %s", path, c.path)
				}
			case <-time.After(wait.Patience):
				t.Fatal("the request goes on")
			}
			f.must(200, "GET", large+"/m1", "", "From: bob")
			all := budget.Reservation{Budget: f.memory}
			if !all.Take(80 << 20) {
				t.Error("not all memory was given back")
			}
		})
	}
}

// TestSmallAnswerThatNobodyTakesIsGivenUp: it is sent when the request is done, by
// the goroutine of the request.
func TestSmallAnswerThatNobodyTakesIsGivenUp(t *testing.T) {
	f := newFixture(t, crowd(nil), func(o *Options) { o.RequestTimeout = time.Second })
	conn := dial(t, f.serveTLS(), true)
	framer := get2(t, conn, "/api/v1/namespaces", 0)
	if err := conn.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok {
			return
		}
	}
}

// dial opens a connection whose buffer for what comes is small.
func dial(t *testing.T, addr string, http2 bool) net.Conn {
	t.Helper()
	plain, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plain.Close() })
	if err := plain.(*net.TCPConn).SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{InsecureSkipVerify: true}
	if http2 {
		config.NextProtos = []string{"h2"}
	}
	return tls.Client(plain, config)
}

// get2 asks for a path as eve, as the first request over HTTP/2 of a connection, and
// lets the server send as much as the window is large.
func get2(t *testing.T, conn net.Conn, path string, window uint32) *http2.Framer {
	t.Helper()
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	f := http2.NewFramer(conn, conn)
	if err := f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}); err != nil {
		t.Fatal(err)
	}
	if window > 65535 {
		if err := f.WriteWindowUpdate(0, window); err != nil {
			t.Fatal(err)
		}
	}
	ask2(t, f, 1, path)
	return f
}

// ask2 asks for a path as eve, by a stream of its own.
func ask2(t *testing.T, f *http2.Framer, stream uint32, path string) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "x"}, {":path", path}, {"from", "eve"}} {
		if err := enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
}
