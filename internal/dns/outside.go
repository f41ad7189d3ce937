package dns

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/forward"
	"github.com/coredns/coredns/plugin/pkg/proxy"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// forward is CoreDNS' plugin, where the machine's resolv.conf stands for the servers that
// are known at the time, without ourselves: asking us again would never end. Of a zone
// without a server for it names are refused.
func (l *loading) forward(p place) error {
	config := dnsserver.GetConfig(p.at("forward"))
	if slices.ContainsFunc(p.block.Tokens["forward"], func(t caddyfile.Token) bool { return t.Text == machineServers }) {
		config.AddPlugin(func(next plugin.Handler) plugin.Handler { return &looking{next, l.s} })
	}
	var rest []caddyfile.Token
	for _, stanza := range stanzas(p.block.Tokens["forward"]) {
		tokens, left := l.addressed(stanza)
		switch {
		case left:
			rest = append(rest, tokens...)
		case len(stanza) > 1:
			config.AddPlugin(refused(plugin.Host(stanza[1].Text).NormalizeExact()))
		}
	}
	if len(rest) == 0 {
		return nil
	}
	return theirs(p, "forward", rest)
}

// stanzas divides the words of directives of one name.
func stanzas(tokens []caddyfile.Token) (list [][]caddyfile.Token) {
	depth, line := 0, -1
	for _, t := range tokens {
		if depth == 0 && t.Line != line && t.Text != "{" {
			list = append(list, nil)
		}
		switch t.Text {
		case "{":
			depth++
		case "}":
			depth--
		}
		line = t.Line
		list[len(list)-1] = append(list[len(list)-1], t)
	}
	return list
}

// addressed puts addresses in the place of the machine's file. left says that there is a
// server to ask, or that CoreDNS is to say what is wrong.
func (l *loading) addressed(stanza []caddyfile.Token) (tokens []caddyfile.Token, left bool) {
	machine := false
	servers := 0
	for i, t := range stanza {
		switch {
		case i < 2 || t.Line != stanza[0].Line || t.Text == "{":
			tokens = append(tokens, t)
			continue
		case t.Text != machineServers:
			tokens = append(tokens, t)
			servers++
			l.target(t.Text)
			continue
		}
		machine = true
		for _, at := range l.settings.servers[:min(len(l.settings.servers), maxServers)] {
			named := t
			named.Text = at.String()
			tokens = append(tokens, named)
			servers++
			l.targets = append(l.targets, at)
		}
	}
	return tokens, servers > 0 || !machine
}

// maxServers is how many servers the plugin forward takes. A machine that names more is no reason to answer nothing.
const maxServers = 15

// target notes a server that the Corefile names by its address.
func (l *loading) target(text string) {
	if list, err := parseServers([]string{strings.TrimPrefix(text, "dns://")}); err == nil {
		l.targets = append(l.targets, list...)
	}
}

// stubs has the stub domains of the config map kube-dns looked up at their servers. They are
// behind the cluster's names, which nobody else knows, and before the servers for all others.
func (l *loading) stubs(config *dnsserver.Config) {
	var zones []*stub
	for zone, servers := range l.settings.stubs {
		if len(servers) == 0 {
			continue
		}
		zones = append(zones, &stub{zone: zone, forward: newForward(servers)})
		l.targets = append(l.targets, servers...)
	}
	if len(zones) == 0 {
		return
	}
	slices.SortFunc(zones, func(a, b *stub) int { // the longest names first
		return cmp.Or(-cmp.Compare(len(a.zone), len(b.zone)), strings.Compare(a.zone, b.zone))
	})
	for _, z := range zones {
		l.inst.OnShutdown = append(l.inst.OnShutdown, z.forward.OnShutdown)
	}
	config.AddPlugin(func(next plugin.Handler) plugin.Handler { return &stubs{next, zones} })
}

// stub is a domain with servers of its own.
type stub struct {
	zone    string
	forward *forward.Forward
}

// stubs are all of them.
type stubs struct {
	next  plugin.Handler
	zones []*stub
}

// Name is the plugin's name.
func (*stubs) Name() string { return "stubdomains" }

// ServeDNS sends one message to the servers of its domain, or passes it on.
func (s *stubs) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	name := (&request.Request{W: w, Req: m}).Name()
	for _, z := range s.zones {
		if dns.IsSubDomain(z.zone, name) {
			return z.forward.ServeDNS(ctx, w, m)
		}
	}
	return plugin.NextOrFailure(s.Name(), s.next, ctx, w, m)
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

// refused is the plugin for zones that nobody is to be asked about.
func refused(zones []string) plugin.Plugin {
	return func(next plugin.Handler) plugin.Handler { return &refusal{next, zones} }
}

type refusal struct {
	next  plugin.Handler
	zones []string
}

// Name is the plugin's name.
func (*refusal) Name() string { return "refusal" }

// ServeDNS refuses one message, or passes it on.
func (r *refusal) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if plugin.Zones(r.zones).Matches((&request.Request{W: w, Req: m}).Name()) != "" {
		return dns.RcodeRefused, nil
	}
	return plugin.NextOrFailure(r.Name(), r.next, ctx, w, m)
}

// looking is the plugin before all that asks other servers: it follows the machine to
// another network.
type looking struct {
	next plugin.Handler
	s    *Server
}

// Name is the plugin's name.
func (*looking) Name() string { return "looking" }

// ServeDNS passes one message on. If the servers turn out to be others now, those are asked.
func (l *looking) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if l.s.look() {
		if server, ok := ctx.Value(dnsserver.Key{}).(*dnsserver.Server); ok {
			return dns.RcodeSuccess, l.s.again(ctx, server, w, m)
		}
	}
	return plugin.NextOrFailure(l.Name(), l.next, ctx, w, m)
}
