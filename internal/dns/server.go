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
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	kube "github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/task"
)

// Options configure a node's DNS server.
type Options struct {
	Transport client.Transport // required
	Domain    string           // cluster domain; default "cluster.local"
	Addresses []netip.AddrPort // where to listen, UDP and TCP; required
	// ServiceIP is the cluster IP by which clients reach these servers. Nothing is
	// forwarded there. Optional.
	ServiceIP netip.Addr
	// ResolvConf names the servers that questions about other names go to, unless
	// the config map kube-system/kube-dns does; default /etc/resolv.conf. It is read
	// again when it has changed and a question comes for another name. None in
	// there: other names are refused.
	ResolvConf string
	// Listen opens the sockets; nil: the host's network.
	Listen Listener
	Logger *slog.Logger // default: no log
}

// Listener opens the sockets of a server.
type Listener interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error)
}

// Server is a node's DNS server.
type Server struct {
	o      Options
	view   *cached
	router *router
	ready  chan struct{}
	mu     struct {
		sync.Mutex
		now    upstreams   // that the router has
		file   os.FileInfo // of ResolvConf as it was read last; nil: not since the start
		looked time.Time   // at the file
	}
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
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Domain = strings.ToLower(strings.Trim(o.Domain, ".")) + "."
	s := &Server{o: o, view: newView(o.Transport), router: &router{log: o.Logger}, ready: make(chan struct{})}
	s.router.look = s.look
	return s, nil
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
	first, err := s.upstreams()
	if err != nil {
		return err
	}
	s.router.set(first)
	s.mu.now = first
	defer s.router.set(upstreams{})
	g := task.NewGroup(ctx)
	for _, addr := range s.o.Addresses {
		if err := s.serve(g, addr); err != nil {
			g.Cancel(err)
			return errors.Join(err, g.Wait())
		}
	}
	g.Go("dns settings", func(ctx context.Context) error {
		s.announce(ctx, first)
		return s.follow(ctx)
	})
	close(s.ready)
	return g.Wait()
}

// listenError says what to do when another server of this machine is in the way.
func listenError(err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen for dns: %w; another DNS server of this machine takes all addresses: let it listen on its own ones only", err)
	}
	return fmt.Errorf("listen for dns: %w", err)
}

// serve listens on one address and answers until the group ends.
func (s *Server) serve(g *task.Group, addr netip.AddrPort) error {
	config := &dnsserver.Config{Zone: ".", Transport: "dns", Port: fmt.Sprint(addr.Port()), ListenHosts: []string{addr.Addr().String()}}
	config.AddPlugin(func(next plugin.Handler) plugin.Handler { return &handler{next, s.view, s.o.Domain} })
	config.AddPlugin(func(plugin.Handler) plugin.Handler { return s.router })
	server, err := dnsserver.NewServer("dns://"+addr.String(), []*dnsserver.Config{config})
	if err != nil {
		return fmt.Errorf("make dns server: %w", err)
	}
	udp, err := s.o.Listen.ListenPacket(g.Context(), "udp", addr.String())
	if err != nil {
		return listenError(err)
	}
	tcp, err := s.o.Listen.Listen(g.Context(), "tcp", addr.String())
	if err != nil {
		udp.Close()
		return listenError(err)
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

// upstreams are the servers to forward to: those of the config map, and where
// it names none, those of the machine.
func (s *Server) upstreams() (upstreams, error) {
	var u upstreams
	if set, ok := s.view.configMaps.Get("kube-system", settingsName); ok {
		var err error
		if u, err = parseSettings(set.Data); err != nil {
			s.o.Logger.Error("config map kube-system/kube-dns is not understood, and not used", "err", err)
			u = upstreams{}
		}
	}
	if len(u.servers) == 0 {
		servers, err := nameservers(s.o.ResolvConf)
		if err != nil {
			return upstreams{}, err
		}
		u.servers = servers
	}
	u.servers = s.others(u.servers)
	for zone := range u.stubs {
		u.stubs[zone] = s.others(u.stubs[zone])
	}
	return u, nil
}

// others leaves ourselves out: asking us again would never end.
func (s *Server) others(servers []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(servers, func(at netip.AddrPort) bool {
		return at == netip.AddrPortFrom(s.o.ServiceIP, 53) || own(s.o.Addresses, at)
	})
}

// follow sends questions on as the config map says, whenever it changes.
func (s *Server) follow(ctx context.Context) error {
	return s.view.configMaps.Each(ctx, kube.FollowOptions{Namespace: "kube-system"}, func([]kube.Delta) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.updateLocked(ctx)
		return nil
	})
}

// updateLocked sends questions on to the servers that are to be asked now.
func (s *Server) updateLocked(ctx context.Context) {
	next, err := s.upstreams()
	if err != nil {
		s.o.Logger.Error("cannot find dns servers to forward to", "err", err)
		return
	}
	if !reflect.DeepEqual(s.mu.now, next) {
		s.mu.now = next
		s.router.set(next)
		s.announce(ctx, next)
	}
}

// lookInterval is how often the machine's resolver may be found changed.
const lookInterval = 2 * time.Second

// look follows the machine to another network: it is called with questions about
// other names, and reads the file with the servers again if it has changed.
func (s *Server) look(ctx context.Context) {
	if !s.mu.TryLock() {
		return // somebody else looks
	}
	defer s.mu.Unlock()
	if time.Since(s.mu.looked) < lookInterval {
		return
	}
	s.mu.looked = time.Now()
	info, err := os.Stat(s.o.ResolvConf)
	if err != nil {
		return // it is being replaced, or there is none
	}
	if old := s.mu.file; old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
		return
	}
	s.mu.file = info
	s.updateLocked(ctx)
}

// announce says where questions go, and tries whether they come back.
func (s *Server) announce(ctx context.Context, u upstreams) {
	if len(u.servers) == 0 {
		s.o.Logger.Info("no dns server to forward to: only cluster names are answered", "file", s.o.ResolvConf)
	}
	s.router.probe(ctx, u)
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
