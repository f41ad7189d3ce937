package dns

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/plugin/forward"
	"github.com/coredns/coredns/plugin/pkg/proxy"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// Options configure a node's DNS server.
type Options struct {
	Transport client.Transport // required
	Domain    string           // cluster domain; default "cluster.local"
	Addresses []netip.AddrPort // where to listen, UDP and TCP; required
	// ResolvConf names the servers that questions about other names go to;
	// default /etc/resolv.conf. None in there: other names are refused.
	ResolvConf string
	// Listen opens the sockets; nil: the host's network.
	Listen Listener
	Logger *slog.Logger
}

// Listener opens the sockets of a server.
type Listener interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
}

// Server is a node's DNS server.
type Server struct {
	o     Options
	view  *cached
	ready chan struct{}
}

// New returns a server; Run runs it.
func New(o Options) (*Server, error) {
	if len(o.Addresses) == 0 {
		return nil, errors.New("dns: no address to listen on")
	}
	if o.Domain == "" {
		o.Domain = "cluster.local"
	}
	if o.ResolvConf == "" {
		o.ResolvConf = "/etc/resolv.conf"
	}
	if o.Listen == nil {
		o.Listen = &net.ListenConfig{}
	}
	o.Domain = strings.ToLower(strings.Trim(o.Domain, ".")) + "."
	return &Server{o: o, view: newView(o.Transport), ready: make(chan struct{})}, nil
}

// Ready is closed when the server answers.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run answers questions until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for _, synced := range s.view.synced() {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	fwd, err := s.forwarder()
	if err != nil {
		return err
	}
	if err := fwd.OnStartup(); err != nil {
		return fmt.Errorf("start forwarding: %w", err)
	}
	defer fwd.OnShutdown()
	g := task.NewGroup(ctx)
	for _, addr := range s.o.Addresses {
		if err := s.serve(g, addr, fwd); err != nil {
			g.Cancel(err)
			return errors.Join(err, g.Wait())
		}
	}
	close(s.ready)
	return g.Wait()
}

// serve listens on one address and answers until the group ends.
func (s *Server) serve(g *task.Group, addr netip.AddrPort, fwd *forward.Forward) error {
	config := &dnsserver.Config{Zone: ".", Transport: "dns", Port: fmt.Sprint(addr.Port()), ListenHosts: []string{addr.Addr().String()}}
	config.AddPlugin(func(next plugin.Handler) plugin.Handler { return &handler{next, s.view, s.o.Domain} })
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		c := cache.New()
		c.Next = next
		return c
	})
	config.AddPlugin(func(plugin.Handler) plugin.Handler { return fwd })
	server, err := dnsserver.NewServer("dns://"+addr.String(), []*dnsserver.Config{config})
	if err != nil {
		return fmt.Errorf("make dns server: %w", err)
	}
	udp, err := s.o.Listen.ListenPacket(g.Context(), "udp", addr.String())
	if err != nil {
		return fmt.Errorf("listen for dns: %w", err)
	}
	tcp, err := s.o.Listen.Listen(g.Context(), "tcp", addr.String())
	if err != nil {
		udp.Close()
		return fmt.Errorf("listen for dns: %w", err)
	}
	g.Go("dns udp "+addr.String(), func(ctx context.Context) error { return ended(ctx, server.ServePacket(udp)) })
	g.Go("dns tcp "+addr.String(), func(ctx context.Context) error { return ended(ctx, server.Serve(tcp)) })
	g.Go("dns stop "+addr.String(), func(ctx context.Context) error {
		<-ctx.Done()
		tcp.Close()
		udp.Close()
		return server.Stop()
	})
	return nil
}

// ended ignores the error of a server whose socket was closed on purpose.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// forwarder sends questions on to the machine's own servers, whose health is
// only looked at when one fails.
func (s *Server) forwarder() (*forward.Forward, error) {
	servers, err := nameservers(s.o.ResolvConf)
	if err != nil {
		return nil, err
	}
	f := forward.New()
	for _, addr := range servers {
		if own(s.o.Addresses, addr) {
			continue // asking ourselves would never end
		}
		p := proxy.NewProxy("forward", addr.String(), "dns")
		p.SetExpire(10 * time.Second)
		p.SetReadTimeout(2 * time.Second)
		f.SetProxy(p)
	}
	if f.Len() == 0 {
		s.o.Logger.Warn("no dns server to forward to; only cluster names are answered", "file", s.o.ResolvConf)
	}
	return f, nil
}

func own(addresses []netip.AddrPort, addr netip.AddrPort) bool {
	for _, a := range addresses {
		if a == addr || a.Addr().IsUnspecified() && a.Port() == addr.Port() && addr.Addr().IsLoopback() {
			return true
		}
	}
	return false
}

// nameservers reads the servers of a resolv.conf file; a missing file names none.
func nameservers(file string) ([]netip.AddrPort, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read dns servers: %w", err)
	}
	defer f.Close()
	var servers []netip.AddrPort
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if ip, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, netip.AddrPortFrom(ip, 53))
		}
	}
	return servers, lines.Err()
}
