package dns

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/cache"
	"github.com/coredns/coredns/plugin/forward"
	"github.com/coredns/coredns/plugin/pkg/proxy"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// settingsName is the config map, in kube-system, by which an administrator
// says where questions about names outside of the cluster go.
const settingsName = "kube-dns"

// upstreams are the servers for names outside of the cluster.
type upstreams struct {
	servers []netip.AddrPort            // for all names; none: those are refused
	stubs   map[string][]netip.AddrPort // by domain, with a dot at the end, for names in it
}

// parseSettings reads the data of the config map. Without upstreamNameservers
// there are no servers in what it returns.
func parseSettings(data map[string]string) (upstreams, error) {
	var (
		u       upstreams
		servers []string
		stubs   map[string][]string
		err     error
	)
	if text := data["upstreamNameservers"]; text != "" {
		if err := json.Unmarshal([]byte(text), &servers); err != nil {
			return u, fmt.Errorf("upstreamNameservers: %w", err)
		}
	}
	if text := data["stubDomains"]; text != "" {
		if err := json.Unmarshal([]byte(text), &stubs); err != nil {
			return u, fmt.Errorf("stubDomains: %w", err)
		}
	}
	if u.servers, err = parseServers(servers); err != nil {
		return u, fmt.Errorf("upstreamNameservers: %w", err)
	}
	u.stubs = map[string][]netip.AddrPort{}
	for domain, list := range stubs {
		zone := strings.ToLower(dns.Fqdn(domain))
		if _, ok := dns.IsDomainName(zone); !ok || zone == "." {
			return u, fmt.Errorf("stubDomains: %q is not a domain", domain)
		}
		if u.stubs[zone], err = parseServers(list); err != nil {
			return u, fmt.Errorf("stubDomains: %s: %w", domain, err)
		}
	}
	return u, nil
}

// parseServers reads addresses with or without a port.
func parseServers(list []string) ([]netip.AddrPort, error) {
	var servers []netip.AddrPort
	for _, s := range list {
		if ip, err := netip.ParseAddr(s); err == nil {
			servers = append(servers, netip.AddrPortFrom(ip, 53))
			continue
		}
		at, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor an address with a port", s)
		}
		servers = append(servers, at)
	}
	return servers, nil
}

// router sends questions on to the servers that are set at the time.
type router struct {
	log  *slog.Logger
	look func(context.Context) // is called before each question; nil: nothing is
	mu   struct {
		sync.RWMutex
		zones []*outside // the longest names first
		probe string     // the name that find out whether questions come back
		loop  bool       // they do: nothing is sent on
	}
}

// outside is where the names of one zone are looked up, with what has been found lately.
type outside struct {
	zone    string
	cache   *cache.Cache
	forward *forward.Forward
}

// Name is the plugin's name.
func (r *router) Name() string { return "outside" }

// ServeDNS answers one message. Without a server for the name it is refused.
func (r *router) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: m}
	if r.look != nil {
		r.look(ctx)
	}
	to := r.choose(state.Name())
	if to == nil {
		return dns.RcodeRefused, nil
	}
	return to.cache.ServeDNS(ctx, w, m)
}

// choose returns where a name is looked up; nil: nowhere.
func (r *router) choose(name string) *outside {
	r.mu.RLock()
	probe, loop := r.mu.probe, r.mu.loop
	i := slices.IndexFunc(r.mu.zones, func(o *outside) bool { return dns.IsSubDomain(o.zone, name) })
	var to *outside
	if i >= 0 {
		to = r.mu.zones[i]
	}
	r.mu.RUnlock()
	if probe != "" && name == probe {
		r.looped()
		return nil
	}
	if loop {
		return nil
	}
	return to
}

// looped notes that what is sent on comes back.
func (r *router) looped() {
	r.mu.Lock()
	known := r.mu.loop
	r.mu.loop = true
	r.mu.Unlock()
	if !known {
		r.log.Error("the dns servers that questions are forwarded to send them back here: only cluster names are answered until they are changed")
	}
}

// set changes the servers. What was remembered from the old ones is forgotten.
func (r *router) set(u upstreams) {
	var zones []*outside
	add := func(zone string, servers []netip.AddrPort) {
		if len(servers) == 0 {
			return
		}
		o := &outside{zone: zone, cache: cache.New(), forward: newForward(servers)}
		o.cache.Next = o.forward
		zones = append(zones, o)
	}
	for zone, servers := range u.stubs {
		add(zone, servers)
	}
	add(".", u.servers)
	slices.SortFunc(zones, func(a, b *outside) int {
		return cmp.Or(-cmp.Compare(len(a.zone), len(b.zone)), strings.Compare(a.zone, b.zone))
	})
	r.mu.Lock()
	old := r.mu.zones
	r.mu.zones, r.mu.loop, r.mu.probe = zones, false, strings.ToLower(rand.Text())+".loop.kemudi.invalid."
	r.mu.Unlock()
	for _, o := range old {
		_ = o.forward.OnShutdown() // it has no error to return
	}
}

// newForward sends questions to any of the servers, whose health is only looked
// at when one fails.
func newForward(servers []netip.AddrPort) *forward.Forward {
	f := forward.New()
	for _, at := range servers {
		p := proxy.NewProxy("forward", at.String(), "dns")
		p.SetExpire(10 * time.Second)
		p.SetReadTimeout(2 * time.Second)
		f.SetProxy(p)
	}
	return f
}

// probe asks all servers for a name that nobody else asks for: should the
// question come back here, they forward to us, and nothing would ever be answered.
func (r *router) probe(ctx context.Context, u upstreams) {
	r.mu.RLock()
	name := r.mu.probe
	r.mu.RUnlock()
	all := u.servers
	for _, zone := range slices.Sorted(maps.Keys(u.stubs)) {
		all = append(slices.Clone(all), u.stubs[zone]...)
	}
	for _, at := range all {
		if ctx.Err() != nil {
			return
		}
		send(ctx, at, name)
	}
}

// send sends one question and does not care for the answer.
func send(ctx context.Context, at netip.AddrPort, name string) {
	m, err := new(dns.Msg).SetQuestion(name, dns.TypeHINFO).Pack()
	if err != nil {
		return
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", at.String())
	if err != nil {
		return
	}
	defer c.Close()
	_, _ = c.Write(m)
}

var _ plugin.Handler = (*router)(nil)
