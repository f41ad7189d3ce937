package etcd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/obs/tracing/collector"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/storetest"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/port"
)

// plainEtcd runs an etcd with its own settings, as its program does, until the test ends or
// stop is called. Its clients show certificates of the authority.
func plainEtcd(t testing.TB, ca *authority, dir string) (address string, stop func()) {
	t.Helper()
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel, c.LogOutputs = "plain", dir, "error", []string{"/dev/null"}
	c.UnsafeNoFsync = true
	at := func(address string) url.URL {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return *u
	}
	client, peer := at("https://"+port.Address(t)), at("http://"+port.Address(t))
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.MaxTxnOps, c.MaxRequestBytes = 10_000, 4718592 // as Remote asks for
	c.ClientTLSInfo = transport.TLSInfo{ClientCertAuth: true}
	c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile, c.ClientTLSInfo.TrustedCAFile = ca.issue(t, "plain")
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(e.Close)
	t.Cleanup(stop)
	select {
	case <-e.Server.ReadyNotify():
	case <-within(t).Done():
		t.Fatal("etcd is not ready")
	}
	return client.String(), stop
}

// runRemote runs a store in the etcd at an address until the test ends.
func runRemote(t testing.TB, ca *authority, address string, with ...func(*RemoteOptions)) *Remote {
	t.Helper()
	o := RemoteOptions{Servers: []string{address}, Log: slog.New(slog.DiscardHandler)}
	for _, f := range with {
		f(&o)
	}
	o.CertFile, o.KeyFile, o.CAFile = ca.issue(t, "client")
	r, err := NewRemote(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := r.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case <-r.Ready():
	case <-within(t).Done():
		t.Fatal("the remote store is not ready")
	}
	return r
}

func TestEtcdOfOthersPassesTheSuite(t *testing.T) {
	ca := newAuthority(t)
	storetest.Run(t, func(t *testing.T) store.Store {
		address, _ := plainEtcd(t, ca, t.TempDir())
		return runRemote(t, ca, address)
	})
}

func TestEtcdOfOthersIsGoneAndComesBack(t *testing.T) {
	ca := newAuthority(t)
	address, stop := plainEtcd(t, ca, t.TempDir())
	r := runRemote(t, ca, address)
	if _, err := r.Txn(within(t), store.Txn{Ops: []store.Op{{Key: "/a", Value: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, _, err := r.Get(within(t), "/a"); !errors.Is(err, store.ErrNoMajority) {
		t.Errorf("read without an etcd: got %v, want ErrNoMajority", err)
	}
	_, err := r.Txn(within(t), store.Txn{Ops: []store.Op{{Key: "/a", Value: []byte("2")}}})
	if !errors.Is(err, store.ErrNoMajority) && !errors.Is(err, store.ErrUnknown) {
		t.Errorf("write without an etcd: got %v, want ErrNoMajority or ErrUnknown", err)
	}
}

func TestEtcdOfOthersIsReachedAsItIsTold(t *testing.T) {
	ca := newAuthority(t)
	address, _ := plainEtcd(t, ca, t.TempDir())
	var asked atomic.Pointer[string]
	r := runRemote(t, ca, address, func(o *RemoteOptions) {
		o.Servers = []string{strings.Replace(address, "127.0.0.1", "member", 1)} // the name that its certificate is for, which is for who connects to resolve
		o.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
			asked.Store(&to)
			return (&net.Dialer{}).DialContext(ctx, network, strings.TrimPrefix(address, "https://"))
		}
	})
	if _, err := r.Txn(within(t), store.Txn{Ops: []store.Op{{Key: "/a", Value: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	if to := asked.Load(); to == nil || !strings.HasPrefix(*to, "member:") {
		t.Errorf("asked to connect to %v, want member and the port of %s", to, address)
	}
}

func TestEtcdOfOthersIsAskedOnceForAllWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAsker()
		asked, now := 0, int64(1)
		begun, end := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			rev, err := a.ask(t.Context(), func(context.Context) (int64, error) {
				close(begun)
				<-end
				return 1, nil
			})
			if rev != 1 || err != nil {
				t.Errorf("the first: got %d, %v; want 1", rev, err)
			}
		})
		<-begun
		now = 7
		for range 100 { // whoever comes while somebody asks waits for the next answer
			wg.Go(func() {
				rev, err := a.ask(t.Context(), func(context.Context) (int64, error) {
					asked++
					return now, nil
				})
				if rev != 7 || err != nil {
					t.Errorf("got %d, %v; want 7", rev, err)
				}
			})
		}
		gone, cancel := context.WithCancelCause(t.Context())
		wg.Go(func() {
			if _, err := a.ask(gone, nil); err == nil || err.Error() != "the caller is gone" {
				t.Errorf("a caller that has gone: got %v", err)
			}
		})
		synctest.Wait()
		cancel(errors.New("the caller is gone"))
		synctest.Wait()
		close(end)
		wg.Wait()
		if asked != 1 {
			t.Errorf("asked %d times for 100 who waited, want once", asked)
		}
	})
}

// TestPlainEtcdGoesOnWithOurData, and we with its.
func TestPlainEtcdGoesOnWithOurData(t *testing.T) {
	ca, dir := newAuthority(t), t.TempDir()
	s, stop := run(t, Options{Dir: dir, NoSync: true})
	for _, key := range []string{"/registry/a", "/registry/b"} {
		write(t, s, key, "ours")
	}
	stop()
	address, end := plainEtcd(t, ca, s.o.dir())
	r := runRemote(t, ca, address)
	page, err := r.List(within(t), "/registry/", store.ListOptions{})
	if err != nil || len(page.KVs) != 2 || string(page.KVs[0].Value) != "ours" {
		t.Fatalf("read by plain etcd: got %v, %v; want two keys", page.KVs, err)
	}
	if _, err := r.Txn(within(t), store.Txn{Ops: []store.Op{{Key: "/registry/c", Value: []byte("theirs")}}}); err != nil {
		t.Fatal(err)
	}
	end()
	s, _ = run(t, Options{Dir: dir, NoSync: true})
	page, err = s.List(within(t), "/registry/", store.ListOptions{})
	if err != nil || len(page.KVs) != 3 || string(page.KVs[2].Value) != "theirs" {
		t.Errorf("read by ours afterwards: got %v, %v; want three keys", page.KVs, err)
	}
	write(t, s, "/registry/d", "ours")
}

func TestRemoteOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]RemoteOptions{
		"no server":           {Log: slog.Default()},
		"no log":              {Servers: []string{"https://127.0.0.1:1"}},
		"a file that is gone": {Servers: []string{"https://127.0.0.1:1"}, Log: slog.Default(), CAFile: "/nonexistent/ca.crt"},
	} {
		if _, err := NewRemote(o); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestCallsOfAnEtcdOfOthersAreTraced(t *testing.T) {
	ca, to := newAuthority(t), collector.New(t)
	address, _ := plainEtcd(t, ca, t.TempDir())
	g := task.NewGroup(context.WithoutCancel(t.Context()))
	p, err := tracing.Begin(g, tracing.Options{Config: &tracing.Config{Endpoint: &to.Address}, Part: "apiserver", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r := runRemote(t, ca, address, func(o *RemoteOptions) { o.Tracing = p })
	asked := httptest.NewRequestWithContext(within(t), http.MethodPost, "/", http.NoBody)
	asked.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	ctx, span := p.Serve(asked, tracing.Request{Name: "POST", Believed: true})
	if _, err := r.Txn(ctx, store.Txn{Ops: []store.Op{{Key: "/a", Value: []byte("1")}}}); err != nil {
		t.Fatal(err)
	}
	span.End()
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if txn := to.Within(to.The("POST"), "etcdserverpb.KV/Txn"); txn.Kind != "client" || txn.Failed {
		t.Errorf("got %+v", txn)
	}
}
