package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/net/http2"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/test/wait"
)

// watched is an event as a client reads it.
type watched struct {
	Type   string
	Object struct {
		Metadata struct{ Name, ResourceVersion string }
		Code     int
	}
}

// TestWatchesOfOneConnectionSeeEveryEventOnce, in its order, whichever they select,
// whatever form they ask for, while others of the connection do not read, and to the
// end of their time.
func TestWatchesOfOneConnectionSeeEveryEventOnce(t *testing.T) {
	const writers, writes, watches = 4, 60, 24
	f := newFixture(t)
	lanes := make(chan bool, 2*watches)
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lane := h2.Open(r.Context(), w)
		lanes <- lane != nil
		if lane != nil {
			_ = lane.Close() // for the watch
		}
		inner.ServeHTTP(w, r)
	})
	base := "https://" + f.serveTLS() + mapsPath
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	maps := client.For(f.As(admin, "writer"), core.ConfigMaps)
	first, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first", Namespace: "default"}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(query string, accept string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"?watch=1&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", accept)
		res, err := transport.RoundTrip(r)
		if err != nil || res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
			t.Fatal(res, err)
		}
		return res
	}
	stalled := open("", "application/json")
	defer stalled.Body.Close()
	var wg sync.WaitGroup
	got := make([][]string, watches)
	for i := range watches {
		query, accept := "resourceVersion="+first.ResourceVersion, "application/json"
		switch i % 3 {
		case 1:
			query += "&labelSelector=odd%3D1"
		case 2:
			accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		}
		res := open(query, accept)
		want := writers * writes
		if i%3 == 1 {
			want /= 2
		}
		wg.Go(func() {
			defer res.Body.Close()
			in := bufio.NewReader(res.Body)
			for range want {
				line, err := in.ReadString('\n')
				if err != nil {
					t.Errorf("watch %d: %v", i, err)
					return
				}
				e := decoded[watched](t, line)
				if e.Type != "ADDED" {
					t.Errorf("watch %d: got %s", i, line)
				}
				got[i] = append(got[i], e.Object.Metadata.Name+"@"+e.Object.Metadata.ResourceVersion)
			}
		})
	}
	seen := createSideBySide(t, maps, writers, writes)
	wg.Wait()
	for range watches + 1 {
		if !<-lanes {
			t.Fatal("a watch over HTTP/2 has no lane")
		}
	}
	for i := range got {
		if want := strings.Join(got[i%3], " "); strings.Join(got[i], " ") != want {
			t.Errorf("watch %d: got %v, want what watch %d got, %s", i, got[i], i%3, want)
		}
		for _, e := range got[i] {
			if !seen[e] {
				t.Errorf("watch %d: got %s, which was not written", i, e)
			}
		}
	}
	before := int64(0)
	for _, e := range got[0] {
		_, rev, _ := strings.Cut(e, "@")
		if n, err := read.ParseRevision(rev); err != nil || n <= before {
			t.Errorf("got revision %s after %d, %v", rev, before, err)
		} else {
			before = n
		}
	}
	last := open("timeoutSeconds=1&allowWatchBookmarks=true&resourceVersion="+fmt.Sprint(before), "application/json")
	defer last.Body.Close()
	text, err := io.ReadAll(last.Body)
	if e := decoded[watched](t, string(text)); err != nil || e.Type != "BOOKMARK" || e.Object.Metadata.ResourceVersion != fmt.Sprint(before) {
		t.Errorf("at the end of its time: got %s, %v, want a bookmark at %d", text, err, before)
	}
}

// createSideBySide creates config maps of all sizes, half of them with the label odd=1.
// It returns them as name@revision.
func createSideBySide(t *testing.T, maps client.Client[*corev1.ConfigMap], writers, writes int) (created map[string]bool) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	created = map[string]bool{}
	for w := range writers {
		wg.Go(func() {
			for n := range writes {
				m, err := maps.Create(t.Context(), &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("w%d-%d", w, n), Namespace: "default", Labels: map[string]string{"odd": fmt.Sprint(n % 2)}},
					Data:       map[string]string{"a": strings.Repeat("x", n*n*20)},
				})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				created[m.Name+"@"+m.ResourceVersion] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return created
}

// blockedWatch is a watch of config maps whose client has received all that it lets the
// server send, while there is more.
type blockedWatch struct {
	t      *testing.T
	f      *fixture
	maps   client.Client[*corev1.ConfigMap]
	framer *http2.Framer
	text   bytes.Buffer
}

// newBlockedWatch has seen the map "first", and is blocked by maps that fill creates.
func newBlockedWatch(t *testing.T, fill func(b *blockedWatch)) *blockedWatch {
	f := newFixture(t, crowd(nil), func(o *Options) { o.RequestTimeout = wait.Patience })
	b := &blockedWatch{t: t, f: f, maps: client.For(f.As(admin, "writer"), core.ConfigMaps)}
	b.create("first", "")
	conn := dial(t, f.serveTLS(), true)
	if err := conn.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	const window, lanes = 280_000, (65535 + 280_000) / 2 // half of the connection's is the lanes'
	b.framer = get2(t, conn, mapsPath+"?watch=1", window)
	b.receive(func() bool { return b.text.Len() > 0 })
	begun := b.text.Len()
	fill(b)
	b.receive(func() bool { return b.text.Len() == begun+lanes })
	return b
}

func (b *blockedWatch) create(name, data string) {
	b.t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"a": data}}
	if _, err := b.maps.Create(b.t.Context(), m); err != nil {
		b.t.Fatal(err)
	}
}

// receive reads frames until the text is enough.
func (b *blockedWatch) receive(enough func() bool) {
	b.t.Helper()
	for !enough() {
		frame, err := b.framer.ReadFrame()
		if err != nil {
			b.t.Fatalf("after %d bytes: %v", b.text.Len(), err)
		}
		switch frame := frame.(type) {
		case *http2.DataFrame:
			b.text.Write(frame.Data())
		case *http2.PingFrame:
			if err := b.framer.WritePing(true, frame.Data); err != nil {
				b.t.Fatal(err)
			}
		case *http2.RSTStreamFrame:
			b.t.Fatalf("got %v", frame)
		}
	}
}

// rest lets the server send, and returns the events to the one that last is part of.
func (b *blockedWatch) rest(last string) []watched {
	b.t.Helper()
	for _, stream := range []uint32{0, 1} {
		if err := b.framer.WriteWindowUpdate(stream, 1<<24); err != nil {
			b.t.Fatal(err)
		}
	}
	b.receive(func() bool {
		return strings.Contains(b.text.String(), last) && strings.HasSuffix(b.text.String(), "\n")
	})
	var events []watched
	for line := range strings.Lines(b.text.String()) {
		events = append(events, decoded[watched](b.t, line))
	}
	return events
}

// TestWatchThatFellBehindIsToldSo, after what it had been sent: its client did not
// read for so long that the log has forgotten what comes next.
func TestWatchThatFellBehindIsToldSo(t *testing.T) {
	b := newBlockedWatch(t, func(b *blockedWatch) {
		for i := range 1000 {
			b.create(fmt.Sprint("m", i), "")
		}
	})
	b.create("forgotten", "")
	b.f.o.Caches.Cache(core.ConfigMaps.Def).Trim()
	b.f.o.Caches.Cache(core.ConfigMaps.Def).Trim()
	events := b.rest(`"ERROR"`)
	for i, e := range events {
		if i == len(events)-1 {
			if e.Type != "ERROR" || e.Object.Code != http.StatusGone {
				t.Errorf("got %v as the last event, want that the revision is too old", e)
			}
		} else if want := fmt.Sprint("m", i-1); i > 0 && e.Object.Metadata.Name != want {
			t.Fatalf("event %d: got %s, want %s", i, e.Object.Metadata.Name, want)
		}
	}
}

// TestWatchGoesOnWithWhatHappenedWhileItWasBlocked, though that woke nobody.
func TestWatchGoesOnWithWhatHappenedWhileItWasBlocked(t *testing.T) {
	b := newBlockedWatch(t, func(b *blockedWatch) { b.create("large", strings.Repeat("x", 400_000)) })
	b.create("late", "")
	events := b.rest(`"late"`)
	for i, want := range []string{"first", "large", "late"} {
		if i >= len(events) || events[i].Object.Metadata.Name != want {
			t.Fatalf("got %v, want first, large and late", events)
		}
	}
}

// TestWatchThatIsStoppedWithinAnEventIsCutOff, so that its client does not take it for whole.
func TestWatchThatIsStoppedWithinAnEventIsCutOff(t *testing.T) {
	f := newFixture(t, crowd(nil))
	stopped, stop := context.WithCancel(t.Context())
	defer stop()
	inner := f.handler
	f.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(stopped, cancel)()
		inner.ServeHTTP(w, r.WithContext(ctx))
	})
	maps := client.For(f.As(admin, "writer"), core.ConfigMaps)
	conn := dial(t, f.serveTLS(), true)
	if err := conn.SetReadDeadline(time.Now().Add(wait.Patience)); err != nil {
		t.Fatal(err)
	}
	const window = 400_000 // half of the connection's is the lanes'
	framer := get2(t, conn, mapsPath+"?watch=1", window)
	size := 0
	for created := false; size < window/2; {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.HeadersFrame:
			if created {
				t.Fatalf("got %v", frame)
			}
			created = true
			_, err := maps.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "default"}, Data: map[string]string{"a": strings.Repeat("x", 2*window)},
			})
			if err != nil {
				t.Fatal(err)
			}
		case *http2.DataFrame:
			size += len(frame.Data())
		}
	}
	stop()
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := frame.(*http2.RSTStreamFrame); ok {
			return
		}
		if data, ok := frame.(*http2.DataFrame); ok && data.StreamEnded() {
			t.Fatal("the stream has ended as if it were whole")
		}
	}
}
