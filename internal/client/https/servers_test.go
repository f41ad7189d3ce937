package https_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/test/wait"
)

func TestOneServerIsAskedWhileItWorks(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 3)
	remote := s.client()
	f := s.follow(remote)
	s.must(clienttest.Churn(s.ctx, remote, "x", 50))
	f.end()
	s.used()
	dials := 0
	for _, m := range s.member {
		dials += s.net.dialed(m.addr)
	}
	if dials > 3 { // what is asked at the very first may dial side by side
		t.Errorf("got %d connections", dials)
	}
}

func TestServerThatDiesIsLeftAtOnce(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 3)
	remote := s.client()
	f := s.follow(remote)
	for range 2 { // until there is one left
		dead := s.used()
		s.net.down(dead.addr, true)
		if _, err := client.For(remote, core.ConfigMaps).List(s.ctx, "", metav1.ListOptions{}); err != nil {
			t.Errorf("read after a server's death: %v", err)
		}
		s.must(clienttest.Churn(s.ctx, remote, "x", 20))
		before := s.net.dialed(dead.addr)
		s.must(clienttest.Churn(s.ctx, remote, "x", 20))
		if s.used() == dead || s.net.dialed(dead.addr) > before {
			t.Errorf("a dead server was asked again while another one answered")
		}
	}
	f.end()
}

func TestServerThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	remote := s.client()
	f := s.follow(remote)
	hung := s.used()
	s.net.hang(hung.addr, true)
	began := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := client.For(remote, core.ConfigMaps).List(s.ctx, "", metav1.ListOptions{}); err != nil {
			t.Errorf("read from a server that hangs: %v", err)
		}
		t.Logf("answered after %s", time.Since(began))
	})
	wg.Go(func() { // whether it was carried out cannot be known (H4)
		if _, err := client.For(remote, core.ConfigMaps).Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "once"}}); err == nil {
			t.Error("a write was sent again that may have been carried out")
		}
	})
	wg.Wait()
	if s.used() == hung {
		t.Error("the server that hangs is still used")
	}
	s.must(clienttest.Churn(s.ctx, remote, "x", 20))
	s.net.hang(hung.addr, false)
	f.end()
}

// TestServersThatAllHangAreNotLeftForEachOther: it may be this machine that is slow.
func TestServersThatAllHangAreNotLeftForEachOther(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	remote := s.client()
	f := s.follow(remote)
	for _, m := range s.member {
		s.net.hang(m.addr, true)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := client.For(remote, core.ConfigMaps).Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "once"}}); err != nil {
			t.Errorf("write that takes long: %v", err)
		}
	})
	used, other := s.member[0], s.member[1]
	if other == s.used() {
		used, other = other, used
	}
	wait.Until(t, func() error { // it is looked at, and found no better
		if s.net.dialed(other.addr) == 0 {
			return errors.New("the other server was not asked")
		}
		return nil
	})
	s.net.hang(used.addr, false)
	wg.Wait()
	s.net.hang(other.addr, false)
	f.end()
}

func TestServerThatStopsIsLeftWithoutAFailedRequest(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	remote := s.client()
	f := s.follow(remote)
	stops := s.used()
	var writes atomic.Int32
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(s.ctx)
	for _, prefix := range []string{"x", "y", "z"} {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := clienttest.Churn(s.ctx, remote, prefix, 5); err != nil {
					t.Errorf("while a server stops: %v", err)
				}
				writes.Add(5)
			}
		})
	}
	more := func() {
		t.Helper()
		least := writes.Load() + 100
		wait.Until(t, func() error {
			if n := writes.Load(); n < least {
				return fmt.Errorf("%d writes, want %d", n, least)
			}
			return nil
		})
	}
	more()
	s.server = s.member[0].server
	if stops == s.member[0] {
		s.server = s.member[1].server
	}
	stops.stop()
	more()
	cancel()
	wg.Wait()
	f.end()
}

// busy is a server that sends everybody away.
func busy(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the server is starting", http.StatusServiceUnavailable)
}

func TestServerThatIsNotReadyIsLeftAtOnce(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	for range 4 { // whichever comes first
		var asked atomic.Int32
		o := fake(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			busy(w, r)
		})
		remote := s.client(func(real *https.Options) {
			real.Servers = append(real.Servers, o.Servers...)
			real.CA = append(real.CA, o.CA...)
		})
		began := time.Now()
		s.must(clienttest.Churn(s.ctx, remote, "x", 20))
		if asked.Load() > 2 {
			t.Errorf("a server that is not ready was asked %d times", asked.Load())
		}
		t.Logf("20 writes took %s", time.Since(began))
	}
}

func TestServerThatComplainsIsLeftIfItIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	o := fake(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "the store has no leader", http.StatusInternalServerError)
	})
	for range 4 {
		remote := s.client(func(real *https.Options) {
			real.Servers = append(real.Servers, o.Servers...)
			real.CA = append(real.CA, o.CA...)
		})
		wait.Until(t, func() error {
			_, err := client.For(remote, core.ConfigMaps).Get(s.ctx, "default", "none")
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("got %w", err)
		})
	}
}

// TestServerThatIsBehindShowsNothingOld (H1): what a client knows it is never told the
// past of, wherever it goes.
func TestServerThatIsBehindShowsNothingOld(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 2)
	remote := s.client()
	f := s.follow(remote)
	ahead, behind := s.used(), s.member[0]
	if ahead == behind {
		behind = s.member[1]
	}
	s.server = ahead.server
	held := make(chan struct{})
	behind.feed.set(held)
	s.must(clienttest.Churn(s.ctx, s.local(), "x", 50))
	newest := s.put("newest")
	s.shows(f.c, newest)
	s.net.down(ahead.addr, true)
	wait.Until(t, func() error {
		if open := s.net.openTo(); len(open) != 1 || open[0] != behind.addr {
			return fmt.Errorf("connected to %v", open)
		}
		return nil
	})
	b := s.put("late")
	if it := f.c.Get("default/newest"); it == nil {
		t.Error("the cache went back")
	}
	behind.feed.set(nil)
	s.shows(f.c, b)
	f.end() // the followers hold every event against what they saw
}

// TestListOfAServerThatIsBehindIsTakenElsewhere: of two servers the one that knows what has
// happened forgets it, and sends the client away just then.
func TestListOfAServerThatIsBehindIsTakenElsewhere(t *testing.T) {
	t.Parallel()
	var lists, refusals atomic.Int32
	fail := func(w http.ResponseWriter, status *apierrors.StatusError) {
		status.ErrStatus.APIVersion, status.ErrStatus.Kind = "v1", "Status"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.ErrStatus.Code))
		_ = json.NewEncoder(w).Encode(status.ErrStatus)
	}
	recent := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !r.URL.Query().Has("watch"):
			if n := lists.Add(1); n == 2 {
				busy(w, r)
			} else {
				say(t, w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(30 + n)}, Items: []corev1.ConfigMap{*at("a", 5)}})
			}
		case lists.Load() == 1:
			fail(w, apierrors.NewResourceExpired("too old"))
		default:
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	old := fake(t, func(w http.ResponseWriter, r *http.Request) {
		switch asked := r.URL.Query().Get("resourceVersion"); {
		case lists.Load() == 0:
			busy(w, r)
		case asked == "31" && r.URL.Query().Get("resourceVersionMatch") == "NotOlderThan":
			refusals.Add(1)
			status := apierrors.NewTimeoutError("Too large resource version", 1)
			status.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge}}
			fail(w, status)
		default:
			say(t, w, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "10"}})
		}
	})
	o := recent
	o.Servers, o.CA = append(o.Servers, old.Servers...), append(o.CA, old.CA...)
	c := run(t, o).Cache(core.ConfigMaps.Def, "")
	reaches(t, c, 33)
	if n := refusals.Load(); n == 0 || c.Len() != 1 {
		t.Errorf("the server that is behind refused %d lists, want some; the cache holds %d objects, want one", n, c.Len())
	}
}

func TestClientsAreSpreadOverTheServers(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 1)
	var mu sync.Mutex
	first := map[string]int{}
	o := https.Options{Servers: []string{"https://10.0.0.1:6443", "https://10.0.0.2:6443/", "https://10.0.0.3:6443", "https://10.0.0.2:6443"}, CA: s.pki.CA.CertPEM(), Backoff: time.Microsecond}
	const clients = 300
	for range clients {
		dialed := false
		o.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if !dialed {
				dialed = true
				first[address]++
			}
			return nil, errDown
		}
		tr, err := https.New(o)
		s.must(err)
		if _, err := client.For(tr, core.ConfigMaps).Get(s.ctx, "default", "a"); err == nil {
			t.Error("got an answer of nobody")
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for address, n := range first {
		if n < clients/6 {
			t.Errorf("%s is the first of %d clients in %d", address, n, clients)
		}
	}
	if len(first) != 3 {
		t.Errorf("got %v, want three servers", first)
	}
}

func TestServersCanBeChanged(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 3)
	urls := s.urls()
	remote := s.client(func(o *https.Options) { o.Servers = urls[:1] })
	f := s.follow(remote)
	s.must(remote.SetServers(urls))
	s.must(clienttest.Churn(s.ctx, remote, "x", 20))
	if s.used() != s.member[0] {
		t.Error("the server was left though it is still one")
	}
	s.must(remote.SetServers(urls[1:]))
	s.must(clienttest.Churn(s.ctx, remote, "x", 20))
	s.net.down(s.member[0].addr, true) // nobody misses it
	s.shows(f.c, s.put("after"))
	if s.used() == s.member[0] {
		t.Error("a server is used that is none any more")
	}
	for _, bad := range [][]string{nil, {"http://10.0.0.1"}, {"https://"}, {"https://10.0.0.1:x"}} {
		if err := remote.SetServers(bad); err == nil {
			t.Errorf("servers %q: got no error", bad)
		}
	}
	s.must(clienttest.Churn(s.ctx, remote, "x", 20))
	f.end()
}

// TestNothingIsLostOrDoubledWhileServersComeAndGo cuts and hangs servers at random, so that
// one can be reached at a time at least.
func TestNothingIsLostOrDoubledWhileServersComeAndGo(t *testing.T) {
	t.Parallel()
	s := newSeveral(t, 3)
	remote := s.client(func(o *https.Options) { o.Backoff = 2 * time.Millisecond })
	f := s.follow(remote)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var left atomic.Int32
	stop := make(chan struct{})
	var breaker sync.WaitGroup
	breaker.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 0))
		for {
			m := s.member[rng.IntN(3)]
			hangs := rng.IntN(4) == 0
			if hangs {
				s.net.hang(m.addr, true)
			} else {
				s.net.down(m.addr, true)
			}
			select {
			case <-stop:
			case <-time.After(100 * time.Millisecond):
			}
			s.net.hang(m.addr, false)
			s.net.down(m.addr, false)
			left.Add(1)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for left.Load() < 30 && s.ctx.Err() == nil {
		s.must(clienttest.Churn(s.ctx, s.local(), "x", 20))
		_ = clienttest.Churn(s.ctx, remote, "y", 20) // who writes meanwhile may not know what was done
	}
	close(stop)
	breaker.Wait()
	f.end()
}
