package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// serviceHealth serves the health check ports of services whose external
// traffic must stay on the node: load balancers ask there which nodes have endpoints.
type serviceHealth struct {
	listen  func(ctx context.Context, network, addr string) (net.Listener, error)
	events  client.EventSink
	log     *slog.Logger
	node    string
	healthy func() bool // whether the proxy itself works

	open map[types.NamespacedName]*healthPort
}

// healthPort is one open port.
type healthPort struct {
	owner  *serviceHealth
	server *http.Server
	at     []string // addresses; empty: all
	port   uint16
	health atomic.Pointer[Health]
}

// update opens and closes ports at the addresses as the list says. It belongs to one goroutine;
// g owns those of the servers.
func (s *serviceHealth) update(ctx context.Context, g *task.Group, at []string, want map[types.NamespacedName]Health) {
	for name, p := range s.open {
		if h, ok := want[name]; !ok || h.Port != p.port || !slices.Equal(at, p.at) {
			_ = p.server.Close()
			delete(s.open, name)
		}
	}
	for name, h := range want {
		p := s.open[name]
		if p == nil {
			var err error
			if p, err = s.start(ctx, g, at, h); err != nil {
				message := fmt.Sprintf("node %s failed to start healthcheck %q on port %d: %v", s.node, name, h.Port, err)
				s.events.Event(h.Service, corev1.EventTypeWarning, "FailedToStartServiceHealthcheck", message)
				s.log.Warn("cannot serve a service's health check", "service", name.String(), "port", h.Port, "err", err)
				continue // and try again at the next change
			}
			s.open[name] = p
		}
		p.health.Store(&h)
	}
}

// start opens a port at all of the addresses, or at none. Those by which the machine is known elsewhere only are passed over.
func (s *serviceHealth) start(ctx context.Context, g *task.Group, at []string, h Health) (*healthPort, error) {
	var open []net.Listener
	for _, a := range at {
		l, err := s.listen(ctx, "tcp", net.JoinHostPort(a, strconv.Itoa(int(h.Port))))
		if errors.Is(err, unix.EADDRNOTAVAIL) {
			continue
		}
		if err != nil {
			for _, l := range open {
				_ = l.Close()
			}
			return nil, err
		}
		open = append(open, l)
	}
	p := &healthPort{owner: s, at: at, port: h.Port}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	for _, l := range open {
		g.Go("health check port of "+h.String(), func(context.Context) error {
			if err := p.server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				s.log.Warn("health check port failed", "service", h.String(), "port", h.Port, "err", err)
			}
			return nil
		})
	}
	return p, nil
}

// close closes all ports.
func (s *serviceHealth) close() {
	for name, p := range s.open {
		_ = p.server.Close()
		delete(s.open, name)
	}
}

// ServeHTTP answers 200 if the service has endpoints here that are ready, and
// else 503.
func (p *healthPort) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h, healthy := p.health.Load(), p.owner.healthy()
	var answer struct {
		Service struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"service"`
		LocalEndpoints      int  `json:"localEndpoints"`
		ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
	}
	answer.Service.Namespace, answer.Service.Name = h.Namespace, h.Name
	answer.LocalEndpoints, answer.ServiceProxyHealthy = h.Local, healthy
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(h.Local))
	status := http.StatusOK
	if h.Local == 0 || !healthy {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, answer)
}

// ownPort is a port on which the proxy tells of itself.
type ownPort struct {
	at    netip.AddrPort
	shows http.Handler
	asked bool // by balancers: that it is not served is an event of the node
}

// serveSelf serves a port of the proxy's own, as soon as it is
// free: that it is not keeps no service from its clients.
func (p *Proxy) serveSelf(ctx context.Context, o ownPort) error {
	at := o.at
	back := task.Backoff{Initial: time.Second, Max: time.Minute, Jitter: 0.2}
	for {
		l, err := p.o.Listen(ctx, "tcp", at.String())
		if err == nil {
			return p.serveOn(ctx, l, o.shows)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		wait := back.Next()
		p.o.Log.Warn("cannot serve the health of the service proxy", "address", at.String(), "err", err, "retry", wait)
		if o.asked {
			message := fmt.Sprintf("failed to start proxier healthz on %s: %v", at, err)
			p.o.Events.Event(p.node(), corev1.EventTypeWarning, "FailedToStartProxierHealthcheck", message)
		}
		if err := task.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

func (p *Proxy) serveOn(ctx context.Context, l net.Listener, shows http.Handler) error {
	server := &http.Server{Handler: shows, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 1 << 16}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the health of the service proxy: %w", err)
	}
	return context.Cause(ctx)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // an error means that the client has gone
}
