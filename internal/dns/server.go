package dns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kube "github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/corefile"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/task"
)

// port is that of DNS.
const port = 53

// Options configure a node's DNS server.
type Options struct {
	Transport client.Transport // required
	Domain    string           // cluster domain; default "cluster.local"
	// Addresses are where to listen, UDP and TCP; required. Their port is the one that a
	// Corefile calls 53; others, and those of HTTP, are opened on the same addresses.
	Addresses []netip.AddrPort
	// ServiceIP is the cluster IP by which clients reach these servers. Nothing is
	// forwarded there. Optional.
	ServiceIP netip.Addr
	// ResolvConf is what a Corefile means by /etc/resolv.conf, unless the config map
	// kube-system/kube-dns names servers; default that file. It is read again when it has
	// changed and a question comes for another name. None in there: other names are refused.
	ResolvConf string
	// NodeName is the node whose pods the server knows; Share, what it has of the pod
	// addresses, ClusterCIDRs. Each node has as large a share.
	NodeName            string
	Share, ClusterCIDRs []netip.Prefix
	// Dir keeps the last good Corefile of a config map. Empty: nothing is kept.
	Dir     string
	Events  client.EventSink      // of the config map; default: nowhere
	Metrics prometheus.Registerer // default: nowhere
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
	o        Options
	view     *cached
	ready    chan struct{}
	counted  *counters
	measured *prometheus.Registry // what the page of metrics has beside CoreDNS' own
	current  atomic.Pointer[config]

	mu struct {
		sync.Mutex
		running  string                          // what is in force: source and settings
		good     source                          // the last that could be read; nil: the one without a config map
		reported string                          // the source that could not be read, as was said
		file     os.FileInfo                     // of ResolvConf as it was read last; nil: not since the start
		looked   time.Time                       // at the file
		sockets  map[endpoint]context.CancelFunc // that are open
		group    *task.Group                     // of all that runs; nil: nothing does
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
		o.ResolvConf = machineServers
	}
	if o.Listen == nil {
		o.Listen = &net.ListenConfig{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Events == nil {
		o.Events = client.NoEvents
	}
	o.Domain = strings.ToLower(strings.Trim(o.Domain, ".")) + "."
	s := &Server{o: o, view: newView(o.Transport, o.NodeName), ready: make(chan struct{}), measured: prometheus.NewRegistry()}
	s.counted = newCounters(s.measured, o.Metrics)
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
	g := task.NewGroup(ctx)
	if err := s.begin(g); err != nil {
		g.Cancel(err)
		return errors.Join(err, g.Wait())
	}
	g.Go("dns corefile", func(ctx context.Context) error { return s.follow(ctx, s.view.corefiles) })
	g.Go("dns metrics", s.programming)
	if s.view.settings.Cache != s.view.corefiles.Cache {
		g.Go("dns settings", func(ctx context.Context) error { return s.follow(ctx, s.view.settings) })
	}
	close(s.ready)
	err := g.Wait()
	if c := s.current.Swap(nil); c != nil {
		err = errors.Join(err, c.stop())
	}
	return err
}

// begin reads the Corefile and opens the sockets.
func (s *Server) begin(g *task.Group) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.group, s.mu.sockets = g, map[endpoint]context.CancelFunc{}
	if s.o.Dir != "" {
		s.mu.good = keep(s.o.Dir).good()
	}
	_, err := s.updateLocked()
	return err
}

// follow keeps to the config maps that r shows, whenever they change.
func (s *Server) follow(ctx context.Context, r client.Reader[*corev1.ConfigMap]) error {
	return r.Each(ctx, kube.FollowOptions{Namespace: metav1.NamespaceSystem}, func(changes []kube.Delta) error {
		if !slices.ContainsFunc(changes, func(d kube.Delta) bool {
			name := d.Last().Object.GetName()
			return name == corefile.ConfigMap || name == settingsName
		}) {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if _, err := s.updateLocked(); err != nil {
			s.o.Logger.Error("cannot follow the settings of dns", "err", err)
		}
		return nil
	})
}

// updateLocked brings into force what is to be now: the Corefile of the config map, or else
// the last one that was good, or else the one without a config map. changed says that it is
// not what was in force before. An error says that none of them can be.
func (s *Server) updateLocked() (changed bool, err error) {
	settings, err := s.upstreams()
	if err != nil {
		return false, err
	}
	set, has := s.view.corefiles.Get(metav1.NamespaceSystem, corefile.ConfigMap)
	plain := source{corefile.Key: corefile.Default(s.o.Domain)}
	candidates := []source{plain}
	if has {
		candidates = []source{sourceOf(set), s.mu.good, plain}
	}
	for n, source := range candidates {
		if source == nil {
			continue
		}
		name := fmt.Sprint(source.sum(), settings)
		if name == s.mu.running {
			return false, nil
		}
		if err = s.useLocked(source, settings); err == nil {
			s.mu.running = name
			if n == 0 && s.mu.reported != "" {
				s.mu.reported = ""
				s.o.Events.Event(set, corev1.EventTypeNormal, "CorefileLoaded", "the Corefile is in force")
			}
			return true, nil
		}
		if n == 0 && has && s.mu.reported != source.sum() {
			s.mu.reported = source.sum()
			s.counted.failed.Inc()
			s.o.Logger.Error("the Corefile of config map kube-system/coredns is not used, the one before stays in force", "err", err)
			s.o.Events.Event(set, corev1.EventTypeWarning, "BadCorefile", err.Error()+"; the Corefile before stays in force")
		}
	}
	return false, err
}

// useLocked reads a Corefile, and answers by it from then on.
func (s *Server) useLocked(src source, settings upstreams) error {
	text, ok := src[corefile.Key]
	if !ok {
		return errors.New("the config map has no key Corefile")
	}
	k, kept := keep(s.o.Dir), s.o.Dir != "" && text != corefile.Default(s.o.Domain)
	if kept {
		if err := k.write(src); err != nil {
			s.o.Logger.Error("cannot keep the Corefile for the next start", "err", err)
		}
	}
	next, err := s.load(text, k.folder(src), settings)
	if err != nil {
		return err
	}
	if err := s.openLocked(next); err != nil {
		return errors.Join(err, next.stop())
	}
	old := s.current.Swap(next)
	s.counted.loaded(text, next)
	s.closeLocked(next)
	s.mu.good = nil
	if kept {
		s.mu.good = src
	}
	if s.o.Dir != "" {
		if err := k.settle(s.mu.good); err != nil {
			s.o.Logger.Error("cannot keep the Corefile for the next start", "err", err)
		}
	}
	s.retireLocked(old)
	if len(next.targets) == 0 {
		s.o.Logger.Info("no dns server to forward to: only cluster names are answered", "file", s.o.ResolvConf)
	}
	s.mu.group.Go("dns probe", func(ctx context.Context) error {
		next.probe(ctx)
		return nil
	})
	return nil
}

// retireLocked ends what was in force when nobody answers by it any more.
func (s *Server) retireLocked(old *config) {
	if old == nil {
		return
	}
	s.mu.group.Go("dns former corefile", func(context.Context) error {
		old.end()
		<-old.idle // questions end by themselves
		if err := old.stop(); err != nil {
			s.o.Logger.Error("cannot end what the former Corefile ran", "err", err)
		}
		return nil
	})
}

// upstreams are the servers to forward to: those of the config map, and where
// it names none, those of the machine.
func (s *Server) upstreams() (upstreams, error) {
	var u upstreams
	if set, ok := s.view.settings.Get(metav1.NamespaceSystem, settingsName); ok {
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
		return at == netip.AddrPortFrom(s.o.ServiceIP, port) || own(s.o.Addresses, at)
	})
}

func own(addresses []netip.AddrPort, addr netip.AddrPort) bool {
	for _, a := range addresses {
		if a == addr || a.Addr().IsUnspecified() && a.Port() == addr.Port() && addr.Addr().IsLoopback() {
			return true
		}
	}
	return false
}

// lookInterval is how often the machine's resolver may be found changed.
const lookInterval = 2 * time.Second

// look follows the machine to another network: it is called with questions about
// other names, and reads the file with the servers again if it has changed. It says
// whether they have.
func (s *Server) look() bool {
	if !s.mu.TryLock() {
		return false // somebody else looks
	}
	defer s.mu.Unlock()
	if time.Since(s.mu.looked) < lookInterval {
		return false
	}
	s.mu.looked = time.Now()
	info, err := os.Stat(s.o.ResolvConf)
	if err != nil {
		return false // it is being replaced, or there is none
	}
	if old := s.mu.file; old != nil && os.SameFile(old, info) && old.ModTime().Equal(info.ModTime()) && old.Size() == info.Size() {
		return false
	}
	s.mu.file = info
	changed, err := s.updateLocked()
	if err != nil {
		s.o.Logger.Error("cannot find dns servers to forward to", "err", err)
	}
	return changed
}

// serverFor is the server of the node that has the share of the pod addresses in which ip
// is; invalid: none has.
func (s *Server) serverFor(ip netip.Addr) netip.Addr {
	if !slices.ContainsFunc(s.o.ClusterCIDRs, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return netip.Addr{}
	}
	for _, share := range s.o.Share {
		if share.Addr().Is4() == ip.Is4() {
			return podnet.Gateway(netip.PrefixFrom(ip, share.Bits()))
		}
	}
	return netip.Addr{}
}
