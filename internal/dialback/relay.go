package dialback

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/kemudi/kemudi/internal/carry"
	"github.com/kemudi/kemudi/internal/rawconn"
)

// Peers are the other servers, which may have tunnels that this one has not.
type Peers struct {
	// CA are the authorities that servers prove themselves by.
	CA *x509.CertPool
	// Certificate is what this server shows to others.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
}

// targetQuery is the parameter that has the address that a server asks for.
const targetQuery = "to"

// Dial has another server, named by its URL, connect to an address by the tunnel that a
// node has to it, as [Registry.Dial]. The error is [ErrNoTunnel] if there is none.
func (p Peers) Dial(ctx context.Context, server, node, address string) (net.Conn, error) {
	at, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	at.Path = strings.TrimSuffix(at.Path, "/") + RelayPath(node)
	at.RawQuery = url.Values{targetQuery: {address}}.Encode()
	call := rawconn.Caller{CA: p.CA, Certificate: p.Certificate}
	conn, _, err := call.Call(ctx, at, http.Header{"Upgrade": {relayProtocol}})
	if no, ok := errors.AsType[*rawconn.Refusal](err); ok && no.Code == http.StatusNotFound && no.Text == ErrNoTunnel.Error() {
		err = ErrNoTunnel
	}
	if err != nil {
		return nil, fmt.Errorf("connect to %s by server %s: %w", address, at.Host, err)
	}
	return &framed{Conn: conn}, nil
}

// Relay connects another server to an address by the tunnel that a node has to this one,
// and by nothing else: a request is not handed on twice. That it is a server that asks has
// been found out before. It returns when the connection, or the request's context, has
// ended. An error is one of the request: it is not answered.
func (r *Registry) Relay(w http.ResponseWriter, req *http.Request, node string) error {
	if !rawconn.Asks(req, relayProtocol) {
		return fmt.Errorf("a connection to a node is asked for over HTTP/1.1 with the header Upgrade: %s", relayProtocol)
	}
	ctx := req.Context()
	to, err := r.Dial(ctx, node, req.URL.Query().Get(targetQuery))
	switch {
	case errors.Is(err, ErrNoTunnel):
		http.Error(w, ErrNoTunnel.Error(), http.StatusNotFound)
		return nil
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
		return nil
	}
	defer to.Close()
	from, err := rawconn.TakeOver(w, relayProtocol, http.Header{serverHeader: {r.id}})
	if err != nil {
		return err
	}
	join(ctx, &framed{Conn: from}, to)
	return nil
}

// join carries what comes from either connection to the other, until one has ended for
// good or ctx has. It closes both.
func join(ctx context.Context, from *framed, to net.Conn) {
	stop := context.AfterFunc(ctx, func() {
		_ = from.Close()
		_ = to.Close()
	})
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = carry.Way(to, from) }) // it may be gone
	if _, err := io.Copy(from, to); err == nil {
		_ = from.CloseWrite() // likewise
	}
	_ = from.Close() // wakes who waits for it
	_ = to.Close()
	wg.Wait()
}
