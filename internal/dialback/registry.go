package dialback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/http2"

	"github.com/kemudi/kemudi/internal/rawconn"
)

// ErrNoTunnel says that a node has no tunnel to this server.
var ErrNoTunnel = errors.New("the node has no tunnel to this server")

// Registry has the tunnels of nodes to this server. Its methods may be called
// concurrently.
type Registry struct {
	id     string // of this server, as long as it runs
	log    *slog.Logger
	client *http2.Transport

	mu struct {
		sync.Mutex
		tunnels map[string]*tunnel
		opened  chan struct{} // closed when there is another tunnel; nil: nobody waits
	}
}

// NewRegistry returns a registry of no tunnels.
func NewRegistry(log *slog.Logger) (*Registry, error) {
	client, err := http2.ConfigureTransports(&http.Transport{
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: tunnelBuffer,
			StrictMaxConcurrentRequests: true, // who is one too many waits
			SendPingTimeout:             serverPing, PingTimeout: pingTimeout, WriteByteTimeout: writeTimeout,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("configure HTTP/2 of tunnels: %w", err)
	}
	r := &Registry{id: rand.Text(), log: log, client: client}
	r.mu.tunnels = map[string]*tunnel{}
	return r, nil
}

// tunnel is the connection of one node.
type tunnel struct {
	node string
	conn *watched
	http *http2.ClientConn
}

// Serve makes a node's tunnel of the request's connection. It goes on when Serve returns, until
// the tunnel or the request's context has ended: then the channel is closed, and end must be
// called. Without a channel there is no tunnel. That the request is the node's own has been
// found out before. An error is one of the request: it is not answered.
func (r *Registry) Serve(w http.ResponseWriter, req *http.Request, node string) (goesOn <-chan struct{}, end func(), _ error) {
	if !rawconn.Asks(req, protocol) {
		return nil, nil, fmt.Errorf("a tunnel is asked for over HTTP/1.1 with the header Upgrade: %s", protocol)
	}
	if slices.Contains(req.Header[othersHeader], r.id) && r.Has(node) {
		w.Header().Set(serverHeader, r.id)
		http.Error(w, errAnother.Error(), http.StatusConflict)
		return nil, nil, nil
	}
	taken, err := rawconn.TakeOver(w, protocol, http.Header{serverHeader: {r.id}})
	if err != nil {
		return nil, nil, err
	}
	conn := watch(taken)
	t := &tunnel{node: node, conn: conn}
	if t.http, err = r.client.NewClientConn(conn); err != nil {
		_ = conn.Close()
		return nil, nil, nil // the agent has gone, and nobody can be told
	}
	r.add(t)
	ctx := req.Context()
	r.log.InfoContext(ctx, "tunnel to node is open", "node", node, "from", conn.RemoteAddr().String())
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn.done, func() {
		if stop() {
			r.log.InfoContext(ctx, "tunnel to node has ended", "node", node)
		}
		r.remove(t)
		_ = conn.Close()
	}, nil
}

// add makes a tunnel its node's, in place of an older one (T2).
func (r *Registry) add(t *tunnel) {
	r.mu.Lock()
	old := r.mu.tunnels[t.node]
	r.mu.tunnels[t.node] = t
	if r.mu.opened != nil {
		close(r.mu.opened)
		r.mu.opened = nil
	}
	r.mu.Unlock()
	if old != nil {
		_ = old.conn.Close() // who uses it is told
	}
}

func (r *Registry) remove(t *tunnel) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.tunnels[t.node] == t {
		delete(r.mu.tunnels, t.node)
	}
}

// find returns a node's tunnel, or nil, and a channel that is closed when there is
// another tunnel.
func (r *Registry) find(node string) (*tunnel, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.opened == nil {
		r.mu.opened = make(chan struct{})
	}
	return r.getLocked(node), r.mu.opened
}

// get returns a node's tunnel, or nil.
func (r *Registry) get(node string) *tunnel {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.getLocked(node)
}

func (r *Registry) getLocked(node string) *tunnel {
	t := r.mu.tunnels[node]
	if t == nil {
		return nil
	}
	select {
	case <-t.conn.done: // it is about to be removed
		return nil
	default:
		return t
	}
}

// Has reports whether a node has a tunnel now.
func (r *Registry) Has(node string) bool { return r.get(node) != nil }

// Len is how many nodes have one.
func (r *Registry) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.mu.tunnels)
}

// Wait waits until a node has a tunnel, or ctx ends, and then returns why it has.
func (r *Registry) Wait(ctx context.Context, node string) error {
	for {
		t, opened := r.find(node)
		if t != nil {
			return nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Drop ends the tunnel of a node that is no longer of the cluster.
func (r *Registry) Drop(node string) {
	if t := r.get(node); t != nil {
		_ = t.conn.Close() // who uses it is told
	}
}

// Dial has a node connect to an address, "10.0.0.7:80" or [NodeAgent], and returns
// the connection. ctx bounds the time until it is there. The error is
// [ErrNoTunnel] if there is none, and else says what the node said.
//
// A read deadline that passes ends the connection. CloseWrite tells the target
// that nothing follows; the target cannot say that without ending the connection.
func (r *Registry) Dial(ctx context.Context, node, address string) (net.Conn, error) {
	t := r.get(node)
	if t == nil {
		return nil, fmt.Errorf("connect to %s: %w", address, ErrNoTunnel)
	}
	return t.dial(ctx, address)
}

// maxRefusal bounds what is read of a node's words.
const maxRefusal = 1 << 10

func (t *tunnel) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, end := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("node %s has not connected to %s within %s", t.node, address, dialTimeout))
	defer end()
	s, sending := newStream(ctx, t.conn, address)
	stop := context.AfterFunc(ctx, func() { s.abort(context.Cause(ctx)) })
	req := (&http.Request{
		Method: http.MethodConnect, URL: &url.URL{Host: address}, Host: address, Header: http.Header{}, Body: sending, ContentLength: -1,
	}).WithContext(s.ctx)
	res, err := t.http.RoundTrip(req)
	if err == nil && res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what there is of it
		_ = res.Body.Close()
		err = fmt.Errorf("node %s: %s", t.node, strings.TrimSpace(string(text)))
	}
	if !stop() && err == nil {
		_ = res.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		if cause := context.Cause(s.ctx); cause != nil {
			err = cause
		}
		s.abort(err)
		return nil, fmt.Errorf("connect to %s by the tunnel of the node: %w", address, err)
	}
	s.receiving = res.Body
	return s, nil
}
