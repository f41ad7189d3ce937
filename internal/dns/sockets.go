package dns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
)

// endpoint is a port that a Corefile names, for DNS or for pages. Its sockets, on all
// addresses, stay open from one Corefile to the next.
type endpoint struct {
	port  uint16
	pages bool
}

// on is where an endpoint is on an address.
func (e endpoint) on(a netip.AddrPort) string {
	if e.port == port && !e.pages {
		return a.String()
	}
	return netip.AddrPortFrom(a.Addr(), e.port).String()
}

// openLocked opens the sockets that a Corefile wants and that are not open yet. Those for
// pages may be somebody else's: DNS goes on without them.
func (s *Server) openLocked(c *config) error {
	for p := range c.servers {
		if err := s.listenLocked(endpoint{port: p}, s.serve); err != nil {
			return listenError(err)
		}
	}
	for p := range c.pages {
		if err := s.listenLocked(endpoint{p, true}, s.servePages); err != nil {
			s.o.Logger.Warn("cannot serve health, readiness or metrics of dns", "err", err)
		}
	}
	return nil
}

// closeLocked closes the sockets that a Corefile does not want.
func (s *Server) closeLocked(c *config) {
	for e, cancel := range s.mu.sockets {
		_, dns := c.servers[e.port]
		_, pages := c.pages[e.port]
		if e.pages && !pages || !e.pages && !dns {
			cancel()
			delete(s.mu.sockets, e)
		}
	}
}

// listenLocked opens the sockets of an endpoint, if they are not, and has them served until
// they are closed.
func (s *Server) listenLocked(e endpoint, serve func(ctx context.Context, e endpoint, open []io.Closer)) error {
	if s.mu.sockets[e] != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.mu.group.Context())
	var open []io.Closer
	for _, a := range s.o.Addresses {
		some, err := s.listen(ctx, e, e.on(a))
		open = append(open, some...)
		if err != nil {
			cancel()
			for _, c := range open {
				err = errors.Join(err, c.Close())
			}
			return err
		}
	}
	s.mu.sockets[e] = cancel
	serve(ctx, e, open)
	return nil
}

// listen opens the sockets of an endpoint on one address.
func (s *Server) listen(ctx context.Context, e endpoint, at string) (open []io.Closer, err error) {
	if !e.pages {
		udp, err := s.o.Listen.ListenPacket(ctx, "udp", at)
		if err != nil {
			return nil, err
		}
		open = append(open, udp)
	}
	tcp, err := s.o.Listen.Listen(ctx, "tcp", at)
	if err != nil {
		return open, err
	}
	return append(open, tcp), nil
}

// listenError says what to do when another server of this machine is in the way.
func listenError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen for dns: %w; another DNS server of this machine takes all addresses: let it listen on its own ones only", err)
	}
	return fmt.Errorf("listen for dns: %w", err)
}

// Bounds of a connection, as CoreDNS has them, and of its end.
const (
	readTimeout  = 3 * time.Second
	writeTimeout = 5 * time.Second
	idleTimeout  = 10 * time.Second
	stopTimeout  = 5 * time.Second
)

// serve answers questions on open sockets.
func (s *Server) serve(ctx context.Context, e endpoint, open []io.Closer) {
	for _, c := range open {
		server := &dns.Server{
			Handler:     s.answer(ctx, e.port),
			ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: func() time.Duration { return idleTimeout }, MaxTCPQueries: -1,
		}
		name := "dns udp"
		switch c := c.(type) {
		case net.PacketConn:
			server.PacketConn, server.Net = c, "udp"
		case net.Listener:
			server.Listener, server.Net, name = c, "tcp", "dns tcp"
		}
		s.mu.group.Go(name, func(context.Context) error { return ended(ctx, server.ActivateAndServe()) })
		s.mu.group.Go("end of "+name, func(context.Context) error {
			<-ctx.Done()
			_ = c.Close() // what comes in between is lost anyway
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
			defer cancel()
			_ = server.ShutdownContext(stop) // who is not done by then is cut off
			return nil
		})
	}
}

// servePages answers HTTP on open sockets.
func (s *Server) servePages(ctx context.Context, e endpoint, open []io.Closer) {
	for _, c := range open {
		l, ok := c.(net.Listener)
		if !ok {
			continue
		}
		server := s.pagesOn(ctx, e.port)
		s.mu.group.Go("dns pages", func(context.Context) error { return ended(ctx, server.Serve(l)) })
		s.mu.group.Go("end of dns pages", func(context.Context) error {
			<-ctx.Done()
			if err := server.Close(); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
}

// ended ignores the error of a server whose socket was closed on purpose.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// answer handles the questions that come to a port.
func (s *Server) answer(ctx context.Context, port uint16) dns.HandlerFunc {
	return func(w dns.ResponseWriter, m *dns.Msg) {
		c := s.enter(ctx)
		if c == nil {
			return // who asked will ask again
		}
		defer c.leave()
		through(ctx, c.servers[port], w, m)
	}
}

// enter returns what is in force, which the caller must leave; nil: nothing is any more.
func (s *Server) enter(ctx context.Context) *config {
	for ctx.Err() == nil {
		c := s.current.Load()
		if c == nil || c.enter() {
			return c
		}
	}
	return nil
}

// through leads a question through the plugins of its zone.
func through(ctx context.Context, server *dnsserver.Server, w dns.ResponseWriter, m *dns.Msg) {
	if server == nil { // the port is about to be closed
		_ = w.WriteMsg(new(dns.Msg).SetRcode(m, dns.RcodeRefused))
		return
	}
	ctx = context.WithValue(ctx, dnsserver.Key{}, server)
	server.ServeDNS(context.WithValue(ctx, dnsserver.LoopKey{}, 0), w, m)
}

// again leads a question that came to former, in the midst of its plugins, through what is in
// force now.
func (s *Server) again(ctx context.Context, former *dnsserver.Server, w dns.ResponseWriter, m *dns.Msg) error {
	c := s.enter(ctx)
	if c == nil {
		return errors.New("dns is about to end")
	}
	defer c.leave()
	var server *dnsserver.Server
	for _, now := range c.servers {
		if now.Addr == former.Addr {
			server = now
		}
	}
	through(ctx, server, w, m)
	return nil
}
