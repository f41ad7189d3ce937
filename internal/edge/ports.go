package edge

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/kemudi/kemudi/internal/apiserver/h2"
	"github.com/kemudi/kemudi/internal/task"
)

// What a client may take its time for (E5).
const (
	headerTimeout = 30 * time.Second
	idleTimeout   = 75 * time.Second
	maxHeader     = 64 << 10 // bytes
)

// ports are those that the edge listens on.
type ports struct {
	e      *Edge
	change chan struct{} // holds a token: what is wanted has changed
	mu     struct {
		sync.Mutex
		wanted Ports
		doors  map[uint16]doorKind
		udp    map[uint16]bool // those of UDP
		states map[string]PortState
	}
}

// doorKind is what the port of a door is like.
type doorKind struct {
	tls      bool
	balancer bool // it is of the balancer of a Service, not of a Gateway
}

func newPorts(e *Edge) *ports {
	p := &ports{e: e, change: make(chan struct{}, 1)}
	p.mu.states = map[string]PortState{}
	return p
}

// want sets the ports to serve.
func (p *ports) want(w Ports) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.wanted != w {
		p.mu.wanted = w
		p.wake()
	}
}

// wantDoors sets the ports of Gateways and balancers.
func (p *ports) wantDoors(s *state) {
	doors, udp := make(map[uint16]doorKind, len(s.ports)), make(map[uint16]bool, len(s.udp))
	for port, d := range s.ports {
		doors[port] = doorKind{d.tls, d.Relay != nil}
	}
	for port := range s.udp {
		udp[port] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !maps.Equal(p.mu.doors, doors) || !maps.Equal(p.mu.udp, udp) {
		p.mu.doors, p.mu.udp = doors, udp
		p.wake()
	}
}

func (p *ports) wake() {
	select {
	case p.change <- struct{}{}:
	default: // there is a token already
	}
}

// tell tells who has come now how the ports are.
func (p *ports) tell(c *Control) {
	p.mu.Lock()
	var list []PortState
	for _, s := range p.mu.states {
		list = append(list, s)
	}
	p.mu.Unlock()
	for _, s := range list {
		_ = c.Send(Report{Port: &s}) // whose end has gone is told again when he comes back
	}
}

// note keeps how a port is and tells of it.
func (p *ports) note(s PortState) {
	p.mu.Lock()
	same := p.mu.states[s.Name] == s
	p.mu.states[s.Name] = s
	p.mu.Unlock()
	if c := p.e.feeder.Load(); c != nil && !same {
		_ = c.Send(Report{Port: &s}) // as above
	}
}

func (p *ports) wanted() Ports {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.wanted
}

// one is a port that is to be served.
type one struct {
	port  uint16
	serve func(context.Context, net.Listener) error
	relay func(context.Context, net.PacketConn) error // nil: it is one of TCP
}

// all are the ports that are wanted, by name.
func (p *ports) all() map[string]one {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := map[string]one{}
	for name, o := range map[string]one{
		"http": {port: p.mu.wanted.HTTP, serve: p.plain}, "https": {port: p.mu.wanted.HTTPS, serve: p.secure}, "status": {port: p.mu.wanted.Status, serve: p.status},
	} {
		if o.port != 0 {
			list[name] = o
		}
	}
	for port, kind := range p.mu.doors {
		d := &doorway{p: p, port: port}
		name, serve := DoorPort, d.plain
		if kind.balancer {
			name = BalancerPort
		}
		if kind.tls {
			name, serve = name+" with TLS", d.secure
		}
		list[name+" "+strconv.Itoa(int(port))] = one{port: port, serve: serve}
	}
	for port := range p.mu.udp {
		list[DoorPort+" of UDP "+strconv.Itoa(int(port))] = one{port: port, relay: (&relay{e: p.e, port: port}).run}
	}
	return list
}

const (
	// DoorPort begins the names of ports of Gateways.
	DoorPort = "gateway"
	// BalancerPort begins those of ports of balancers.
	BalancerPort = "balancer"
)

// run serves the ports that are wanted.
func (p *ports) run(ctx context.Context) error {
	g := task.NewGroup(ctx)
	type runs struct {
		port uint16
		end  func(error)
	}
	running := map[string]runs{}
	for {
		select {
		case <-ctx.Done():
			return g.Wait()
		case <-p.change:
		}
		next := p.all()
		for name, r := range running {
			if next[name].port != r.port {
				r.end(errors.New("another port is wanted"))
				delete(running, name)
				p.forget(name)
			}
		}
		for name, o := range next {
			if _, served := running[name]; served {
				continue
			}
			one, cancel := context.WithCancelCause(g.Context())
			running[name] = runs{o.port, cancel}
			g.Go(name+" port", func(context.Context) error {
				defer cancel(nil)
				return p.keep(one, name, o)
			})
		}
	}
}

// forget has a port not count that is not wanted any more.
func (p *ports) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.states, name)
}

// keep serves a port, as soon as it is free.
func (p *ports) keep(ctx context.Context, name string, o one) error {
	port := o.port
	address := net.JoinHostPort("", strconv.Itoa(int(port)))
	if name == "status" {
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	}
	// Nobody tells when a port becomes free.
	wait := task.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: 0.2}
	for {
		serve, err := p.open(ctx, address, o)
		if err == nil {
			p.note(PortState{Name: name, Port: port})
			return serve(ctx)
		}
		if ctx.Err() != nil {
			return nil
		}
		p.note(PortState{Name: name, Port: port, Error: err.Error(), Taken: errors.Is(err, syscall.EADDRINUSE)})
		if err := task.Sleep(ctx, wait.Next()); err != nil {
			return nil
		}
	}
}

// open opens a port, and returns what serves it.
func (p *ports) open(ctx context.Context, address string, o one) (serve func(context.Context) error, _ error) {
	if o.relay != nil {
		c, err := p.e.o.ListenPacket(ctx, "udp", address)
		return func(ctx context.Context) error { return o.relay(ctx, c) }, err
	}
	l, err := p.e.o.Listen(ctx, "tcp", address)
	return func(ctx context.Context) error { return o.serve(ctx, l) }, err
}

func (p *ports) plain(ctx context.Context, l net.Listener) error {
	return p.serve(ctx, p.server(), l)
}

func (p *ports) secure(ctx context.Context, l net.Listener) error {
	s := p.server()
	s.TLSConfig = p.e.tlsConfig()
	s.TLSConfig.GetConfigForClient = p.e.asking
	s.ConnContext = withIdentity
	return p.serve(ctx, s, l)
}

// server is an HTTP server for clients.
func (p *ports) server() *http.Server {
	s := &http.Server{
		Handler: p.e, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: p.e.errors, Protocols: &http.Protocols{},
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				p.e.metrics.connections.Inc()
			case http.StateClosed, http.StateHijacked:
				p.e.metrics.connections.Dec()
			}
		},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// serve serves until ctx ends, and then until what is under way is done.
func (p *ports) serve(ctx context.Context, s *http.Server, l net.Listener) error {
	g := task.NewGroup(ctx)
	g.Go("serve", func(ctx context.Context) error {
		serve := s.Serve
		if s.TLSConfig != nil {
			if err := h2.Configure(s, h2.Options{Timeout: sendTimeout}); err != nil { // E5
				return err
			}
			serve = func(l net.Listener) error { return s.ServeTLS(h2.Listener{Listener: l}, "", "") }
		}
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go("drain", func(ctx context.Context) error {
		<-ctx.Done()
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		if s.Shutdown(bounded) != nil {
			return s.Close()
		}
		return nil
	})
	return g.Wait()
}

// status serves metrics and health to this machine.
func (p *ports) status(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(p.e.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		for _, s := range p.failing() {
			http.Error(w, "port "+strconv.Itoa(int(s.Port))+": "+s.Error, http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok"))
	})
	return p.serve(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout}, l)
}

// failing are the ports that are not served.
func (p *ports) failing() (list []PortState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.mu.states {
		if s.Error != "" {
			list = append(list, s)
		}
	}
	return list
}
