package h2

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// counting counts the system calls that send.
type counting struct {
	net.Listener
	writes *atomic.Int64
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &countingConn{Conn: c, writes: l.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// serve serves h until the test ends, and counts what is sent.
func serve(t *testing.T, h http.Handler) (url string, client *http.Client, writes *atomic.Int64) {
	t.Helper()
	lent := httptest.NewTLSServer(nil) // for its certificate
	config := lent.TLS.Clone()
	lent.Close()
	config.NextProtos = []string{"h2", "http/1.1"}
	srv := &http.Server{Handler: h, TLSConfig: config}
	if err := Configure(srv, Options{Timeout: srv.WriteTimeout}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	writes = &atomic.Int64{}
	g := task.NewGroup(t.Context())
	g.Go("serve", func(context.Context) error {
		if err := srv.ServeTLS(Listener{counting{l, writes}}, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := errors.Join(srv.Close(), g.Wait()); err != nil {
			t.Error(err)
		}
	})
	return "https://" + l.Addr().String(), &http.Client{Transport: transport}, writes
}

func TestManyAnswersOnOneConnectionComeWhole(t *testing.T) {
	url, client, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		for half := range bytes.SplitSeq(body, []byte("|")) {
			if _, err := w.Write(half); err != nil {
				t.Error(err)
			}
			w.(http.Flusher).Flush()
		}
	}))
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			half := strings.Repeat(string(rune('a'+i%26)), i*i*100)
			res, err := client.Post(url, "text/plain", strings.NewReader(half+"|"+half))
			if err != nil {
				t.Error(err)
				return
			}
			defer res.Body.Close()
			got, err := io.ReadAll(res.Body)
			if err != nil || string(got) != half+half || res.ProtoMajor != 2 {
				t.Errorf("answer %d by HTTP/%d: %d bytes, %v, want %d bytes", i, res.ProtoMajor, len(got), err, 2*len(half))
			}
		})
	}
	wg.Wait()
}

func TestLargeAnswersTakeFewSystemCalls(t *testing.T) {
	const size = 8 << 20
	url, client, writes := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := w.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
	}))
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, err := io.Copy(io.Discard, res.Body); n != size || err != nil {
		t.Errorf("got %d bytes, %v, want %d", n, err, size)
	}
	// A frame has 16 KiB at most: sent one by one it would be 1,024 calls.
	if n := writes.Load(); n > 800 {
		t.Errorf("%d bytes were sent by %d system calls", size, n)
	}
}

func TestWhoDoesNotReadHoldsUpNobodyElse(t *testing.T) {
	gone := make(chan error, 1)
	url, client, _ := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/short" {
			return
		}
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				gone <- err
				return
			}
		}
	}))
	endless, err := client.Get(url + "/endless")
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // on the same connection
		res, err := client.Get(url + "/short")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
	}
	endless.Body.Close()
	<-gone // the handler is told
}

func TestBusySendersRestLongerTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pace
		rest := func(since time.Duration) time.Duration {
			began := time.Now()
			if err := p.Rest(t.Context(), began.Add(-since)); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		for since, want := range map[time.Duration]time.Duration{0: 4 * time.Millisecond, time.Millisecond: 3 * time.Millisecond, 4 * time.Millisecond: 0, time.Hour: 0} {
			if got := rest(since); got != want {
				t.Errorf("alone, %s after sending: rested %s, want %s", since, got, want)
			}
		}
		var wg sync.WaitGroup
		var longest atomic.Int64
		together := func(n int) time.Duration {
			longest.Store(0)
			for range n {
				wg.Go(func() {
					took := int64(rest(0))
					for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
					}
				})
			}
			wg.Wait()
			return time.Duration(longest.Load())
		}
		if got, want := together(65), 20*time.Millisecond; got != want {
			t.Errorf("65 together: rested up to %s, want %s", got, want)
		}
		if got := together(5000); got != restMost {
			t.Errorf("5,000 together: rested up to %s, want %s", got, restMost)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if p.Rest(ctx, time.Now()) == nil {
			t.Error("rested although the context had ended")
		}
	})
}
