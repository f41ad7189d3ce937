package inquiry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/kemudi/kemudi/internal/rawconn"
	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/test/wait"
)

// neighbour is a server whose member answers.
type neighbour struct {
	*httptest.Server
	dialled atomic.Int64 // connections
}

func serve(t *testing.T, at func(context.Context) (etcd.Standing, error)) *neighbour {
	n := new(neighbour)
	mux := http.NewServeMux()
	mux.Handle("GET "+Path, Handler(at))
	n.Server = httptest.NewUnstartedServer(mux)
	n.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			n.dialled.Add(1)
		}
	}
	n.StartTLS()
	t.Cleanup(n.Close)
	return n
}

// TestMembersAreAskedByConnectionsThatAreKept: of two servers of one machine by that of the member, by a new one when the
// other end has given it up, and by none when it is over.
func TestMembersAreAskedByConnectionsThatAreKept(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience)
	defer cancel()
	var index atomic.Uint64
	errGone := errors.New("this server stops")
	member := func(id uint64, ends *atomic.Bool) func(context.Context) (etcd.Standing, error) {
		return func(context.Context) (etcd.Standing, error) {
			if ends.Swap(false) {
				return etcd.Standing{}, errGone
			}
			return etcd.Standing{Member: id, Leads: id == 2, Follows: 2, Term: 7, Index: index.Add(1)}, nil
		}
	}
	var ends atomic.Bool
	first, second := serve(t, member(1, new(atomic.Bool))), serve(t, member(2, &ends))
	pool := x509.NewCertPool()
	pool.AddCert(first.Certificate())
	pool.AddCert(second.Certificate())
	a := &Asker{
		Others: func() []string { return []string{first.URL, second.URL} },
		Caller: func() rawconn.Caller {
			return rawconn.Caller{CA: pool, Certificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return new(tls.Certificate), nil }}
		},
	}
	ask := func(asked uint64) (etcd.Standing, error) {
		return a.Ask(ctx, etcd.Other{Asker: 1, Asked: asked, Peers: []string{"https://127.0.0.1:2380"}})
	}
	dialled := func(of *neighbour, want int64) {
		t.Helper()
		if n := of.dialled.Load(); n != want {
			t.Errorf("%d connections were made, want %d", n, want)
		}
	}
	for range 3 {
		want := index.Load()
		got, err := ask(2)
		if err != nil || got.Member != 2 || !got.Leads || got.Follows != 2 || got.Term != 7 || got.Index <= want {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	dialled(first, 1) // to find out that it is another member
	dialled(second, 1)
	ends.Store(true)
	if got, err := ask(2); err != nil || got.Member != 2 {
		t.Errorf("after the other end has given the connection up: got %+v, %v", got, err)
	}
	dialled(second, 2)
	if got, err := ask(3); err == nil {
		t.Errorf("of a member that is nowhere got %+v", got)
	}
	a.Close()
	if got, err := ask(2); !errors.Is(err, errNoMoreQuestions) {
		t.Errorf("after its end got %+v, %v", got, err)
	}
}
