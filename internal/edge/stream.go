package edge

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/carry"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
)

// sorted serves a port of a door: what is HTTP goes to the server, what is not goes its own way.
func (w *doorway) sorted(ctx context.Context, s *http.Server, l net.Listener) error {
	g := task.NewGroup(ctx)
	in := &sorter{Listener: l, w: w, g: g, http: make(chan net.Conn), shut: make(chan struct{})}
	g.Go("sort", func(ctx context.Context) error {
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		in.sort(ctx)
		return nil
	})
	g.Go("http", func(ctx context.Context) error { return w.p.serve(ctx, s, in) })
	return g.Wait()
}

// sorter is a listener that keeps to itself what is not HTTP.
type sorter struct {
	net.Listener
	w    *doorway
	g    *task.Group
	http chan net.Conn
	shut chan struct{} // closed by Close

	closed sync.Once
}

// Accept returns the next connection of HTTP.
func (s *sorter) Accept() (net.Conn, error) {
	select {
	case c := <-s.http:
		return c, nil
	case <-s.shut:
		return nil, net.ErrClosed
	}
}

// Close ends the listener; the sorter may be closed more than once.
func (s *sorter) Close() (err error) {
	s.closed.Do(func() {
		close(s.shut)
		err = s.Listener.Close()
	})
	return err
}

// sort takes connections until the listener is closed.
func (s *sorter) sort(ctx context.Context) {
	wait := task.Backoff{Initial: 5 * time.Millisecond, Max: time.Second}
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil || task.Sleep(ctx, wait.Next()) != nil {
				return
			}
			continue
		}
		wait.Reset()
		d := s.w.now()
		m := meet(d, c)
		if m == nil {
			c.Close()
			continue
		}
		if d == nil || !d.streams {
			s.hand(ctx, m.guarded(s.g))
			continue
		}
		s.g.Go("connection", func(ctx context.Context) error {
			s.look(ctx, m)
			return nil
		})
	}
}

func (s *sorter) hand(ctx context.Context, c net.Conn) {
	select {
	case s.http <- c:
	case <-ctx.Done():
		c.Close()
	}
}

// look finds out what a connection is for, and has it served.
func (s *sorter) look(ctx context.Context, m *met) {
	d, c := s.w.now(), m.conn
	if d == nil {
		c.Close()
		return
	}
	if !d.tls {
		s.w.stream(ctx, stream{d: d, met: m, from: c})
		return
	}
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout)) // E5
	heard := &replayed{Conn: c}
	name, err := helloName(ctx, heard)
	_ = c.SetReadDeadline(time.Time{})
	if err != nil {
		c.Close()
		return
	}
	heard.again()
	i := d.listener(name)
	switch {
	case i < 0:
		c.Close()
	case d.Listeners[i].Mode == route.Secure:
		s.hand(ctx, heard)
	case d.Listeners[i].Mode == route.Terminate:
		t := tls.Server(heard, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: s.w.config})
		bounded, cancel := context.WithTimeout(ctx, headerTimeout)
		err := t.HandshakeContext(bounded)
		cancel()
		if err != nil {
			c.Close()
			return
		}
		s.w.stream(ctx, stream{d: d, met: m, listener: i, from: t, name: name})
	default:
		s.w.stream(ctx, stream{d: d, met: m, listener: i, from: heard, name: name})
	}
}

// stream is a connection of a client that is no HTTP.
type stream struct {
	d        *door
	met      *met
	listener int      // of the door
	from     net.Conn // what the client says, without TLS if that ends here
	name     string   // that it asks for
}

// stream connects a client with an endpoint until both have said all.
func (w *doorway) stream(ctx context.Context, s stream) {
	c := s.from
	defer c.Close()
	e := w.p.e
	x := &exchange{e: e, s: e.state.Load(), door: s.d, host: s.name, o: &noOptions, client: clientOf(c.RemoteAddr().String())}
	x.target = s.d.tables[s.listener].Find(s.name, "/", nil)
	if x.target == nil || x.target.Action == nil {
		return
	}
	b := choose(x.target.Action.Backends)
	if b == nil || b.Upstream == "" {
		return
	}
	x.backend, x.pool = b, x.s.pools[b.Upstream]
	x.wanted = s.d.sticky(x.s.pools, x.target.Action, x.client)
	p := passage{x: x, s: s, began: time.Now()}
	defer p.log()
	raw, err := x.pickStream(ctx)
	if err != nil {
		p.err = err
		return
	}
	defer raw.Close()
	to, err := x.greet(ctx, s.met, raw)
	if err != nil {
		p.err = err
		return
	}
	e.metrics.streams.Inc()
	defer e.metrics.streams.Dec()
	// What is under way may go on for as long as requests may when the port or the process ends.
	g := task.NewGroup(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetDeadline(time.Now().Add(drain))
		_ = to.SetDeadline(time.Now().Add(drain))
	})
	defer stop()
	unbound := x.bound(ctx, s.met, raw)
	g.Go("up", func(context.Context) (err error) {
		p.received, err = carry.Way(to, c)
		return err
	})
	g.Go("down", func(context.Context) (err error) {
		p.sent, err = carry.Way(c, to)
		return err
	})
	_ = g.Wait() // whose end is broken is told by its closing
	unbound()
}

// greet says to an endpoint what comes before the client's words, and returns what these go to.
func (x *exchange) greet(ctx context.Context, m *met, to net.Conn) (net.Conn, error) {
	relay, trust := x.door.Relay, x.backend.Trust
	if err := m.announce(relay, to); err != nil {
		return nil, err
	}
	var c *tls.Config
	switch {
	case trust != nil:
		c = x.e.known509(trust)
	case relay != nil && x.backend.Protocol == route.HTTPS:
		c = &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} // the addresses of pods are in no certificate
	default:
		return to, nil
	}
	safe := tls.Client(to, c)
	bounded, cancel := context.WithTimeout(ctx, 2*connectTimeout)
	defer cancel()
	if err := safe.HandshakeContext(bounded); err != nil {
		return nil, fmt.Errorf("speak TLS with %s: %w", to.RemoteAddr(), err)
	}
	return safe, nil
}

// replayed is a connection of which what was read can be read again.
type replayed struct {
	net.Conn
	said   bytes.Buffer // what was read
	replay bool         // it is to be read again
}

// again has what was read come once more.
func (r *replayed) again() { r.replay = true }

func (r *replayed) Read(p []byte) (int, error) {
	if r.replay {
		if r.said.Len() > 0 {
			return r.said.Read(p)
		}
		return r.Conn.Read(p)
	}
	n, err := r.Conn.Read(p)
	r.said.Write(p[:n])
	return n, err
}

// Write sends nothing before it is known who is to answer.
func (r *replayed) Write(p []byte) (int, error) {
	if !r.replay {
		return len(p), nil
	}
	return r.Conn.Write(p)
}

// CloseWrite says that no more is sent.
func (r *replayed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return r.Conn.Close()
}

// errHeard ends a handshake of which the beginning was enough.
var errHeard = errors.New("the name is known")

// helloName is the name that a client asks for with its first words.
func helloName(ctx context.Context, c net.Conn) (name string, err error) {
	heard := false
	err = tls.Server(c, &tls.Config{GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, heard = serverName(hello), true
		return nil, errHeard
	}}).HandshakeContext(ctx)
	if heard {
		return name, nil
	}
	return "", err
}
