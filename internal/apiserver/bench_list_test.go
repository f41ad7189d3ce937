package apiserver

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/store/mem"
)

// discard is a ResponseWriter to nowhere.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }

// BenchmarkList10000Pods lists 10,000 pods of about 5 KB in protobuf: by calls
// of the handler, and over TLS with a client in a process of its own, so that
// cpu-us/op is the server's. A cold list is the first one of a server.
func BenchmarkList10000Pods(b *testing.B) {
	f := newFixture(b)
	fill(b, f, 10000)
	heap(b, "with 10,000 pods")
	for _, kind := range []string{request.JSON, request.Proto} {
		short := kind[strings.LastIndexAny(kind, "/.")+1:]
		for _, cold := range []bool{true, false} {
			state := map[bool]string{true: "cold", false: "warm"}[cold]
			b.Run("handler/"+short+"/"+state, func(b *testing.B) { newListBench(b, f, cold).handler(kind) })
			b.Run("http1/"+short+"/"+state, func(b *testing.B) { newListBench(b, f, cold).client(kind, "http1") })
			b.Run("http2/"+short+"/"+state, func(b *testing.B) { newListBench(b, f, cold).client(kind, "http2") })
		}
	}
	heap(b, "after the lists")
}

// BenchmarkListInPages lists 10,000 pods in pages of 500, as kubectl does, and
// whole beside it.
func BenchmarkListInPages(b *testing.B) {
	f := newFixture(b)
	fill(b, f, 10000)
	for _, kind := range []string{request.JSON, request.Proto} {
		short := kind[strings.LastIndexAny(kind, "/.")+1:]
		for _, form := range []struct{ name, query string }{{"whole", ""}, {"pages", "limit=500"}} {
			b.Run(short+"/"+form.name, func(b *testing.B) {
				f.listThrough(kind, form.query) // the encodings are made once
				b.ReportAllocs()
				for b.Loop() {
					f.listThrough(kind, form.query)
				}
			})
		}
	}
}

// listThrough lists pods to the end.
func (f *fixture) listThrough(kind, query string) {
	for token := "start"; token != ""; {
		r := httptest.NewRequest("GET", "/api/v1/pods?"+query, nil)
		if token != "start" {
			r.URL.RawQuery += "&continue=" + token
		}
		r.Header.Set("Accept", kind)
		w := &tokenReader{discard: discard{header: http.Header{}}}
		f.Handler().ServeHTTP(w, r)
		token = w.token
	}
}

// tokenReader finds the continue token at the beginning of a list.
type tokenReader struct {
	discard
	token string
}

var tokens = regexp.MustCompile(`eyJ[-\w]+`)

func (w *tokenReader) Write(p []byte) (int, error) {
	if w.n == 0 {
		w.token = string(tokens.Find(p[:min(len(p), 500)]))
	}
	return w.discard.Write(p)
}

// listBench lists the objects in a store.
type listBench struct {
	*testing.B
	cold  bool
	store *mem.Store
	now   atomic.Pointer[fixture]
}

func newListBench(b *testing.B, f *fixture, cold bool) *listBench {
	l := &listBench{B: b, cold: cold, store: f.store.(*mem.Store)}
	l.now.Store(f)
	return l
}

// next gets the server ready for a list, which is not part of what is measured.
func (l *listBench) next() {
	if !l.cold {
		return
	}
	l.StopTimer()
	f := newFixture(l, func(o *Options) { o.Store = l.store })
	f.must(200, "GET", "/api/v1/pods?limit=1", "")
	l.now.Store(f)
	runtime.GC()
	l.StartTimer()
}

func (l *listBench) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.now.Load().Handler().ServeHTTP(w, r)
}

func heap(b *testing.B, when string) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Logf("live heap %s: %d MiB", when, m.HeapAlloc>>20)
}

func (l *listBench) handler(kind string) {
	r := httptest.NewRequest("GET", "/api/v1/pods", nil)
	r.Header.Set("Accept", kind)
	l.ServeHTTP(&discard{header: http.Header{}}, r)
	l.ReportAllocs()
	l.measure(func() time.Duration {
		start := time.Now()
		w := &discard{header: http.Header{}}
		l.ServeHTTP(w, r)
		l.SetBytes(int64(w.n))
		return time.Since(start)
	})
}

// measure lists again and again, and reports the mean of what list returns, and
// how much processor time this process took for it.
func (l *listBench) measure(list func() time.Duration) {
	var wall, used time.Duration
	l.ResetTimer()
	for range l.N {
		l.next()
		before := processTime(l)
		wall += list()
		used += processTime(l) - before
	}
	l.ReportMetric(float64(wall.Microseconds())/float64(l.N)/1000, "wall-ms")
	l.ReportMetric(float64(used.Microseconds())/float64(l.N)/1000, "cpu-ms")
}

// listClient tells a process that it is the client of a benchmark: a URL and a
// media type, and "http2" or "http1".
const listClient = "KEMUDI_TEST_LIST_CLIENT"

// TestListClient is the client's side of BenchmarkList10000Pods: it lists once
// for each line that it reads, and answers how long that took, in nanoseconds,
// and how many bytes there were.
func TestListClient(t *testing.T) {
	args := strings.Fields(os.Getenv(listClient))
	if len(args) != 3 {
		t.Skip("is for a benchmark")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: args[2] == "http2", DisableCompression: true}
	defer transport.CloseIdleConnections()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, args[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", args[1])
		start := time.Now()
		res, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		_ = res.Body.Close()
		fmt.Println("took", took.Nanoseconds(), n)
	}
}

func (l *listBench) client(kind, version string) {
	srv := httptest.NewUnstartedServer(l)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	cmd := exec.CommandContext(l.Context(), os.Args[0], "-test.run=^TestListClient$", "-test.count=1")
	cmd.Env = append(os.Environ(), listClient+"="+srv.URL+"/api/v1/pods "+kind+" "+version)
	in, err := cmd.StdinPipe()
	if err != nil {
		l.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		l.Fatal(err)
	}
	answers := bufio.NewScanner(out)
	list := func() (took time.Duration) {
		_, _ = fmt.Fprintln(in)
		for answers.Scan() {
			var n int64
			if _, err := fmt.Sscanf(answers.Text(), "took %d %d", &took, &n); err == nil {
				l.SetBytes(n)
				return took
			}
		}
		l.Fatalf("the client has ended: %v", answers.Err())
		return 0
	}
	list() // connects
	l.measure(list)
	_ = in.Close()
	if err := cmd.Wait(); err != nil {
		l.Error(err)
	}
}
