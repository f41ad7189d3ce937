package dns

import (
	"context"
	"slices"

	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// shortcut is before the cache of a block that is told not to remember names of the cluster,
// and asks the plugin kubernetes for them at once: the cache would copy each answer, look
// at it, and remember nothing. The Corefile that clusters have by default is such a one.
type shortcut struct {
	next  plugin.Handler
	zones []string
	to    *handler
}

// cache is CoreDNS' plugin. Names of the cluster that it is not to remember go past it,
// where nothing is between it and those.
func (l *loading) cache(p place) error {
	if zones := unremembered(p.block.Tokens["cache"]); len(zones) > 0 && direct(p.block) {
		config := dnsserver.GetConfig(p.at("cache"))
		s := &shortcut{zones: zones}
		l.shortcuts[config] = s
		config.AddPlugin(func(next plugin.Handler) plugin.Handler {
			s.next = next
			return s
		})
	}
	return theirs(p, "cache", p.block.Tokens["cache"])
}

// unremembered are the zones of which a cache is to remember neither what is there nor what
// is not.
func unremembered(tokens []caddyfile.Token) (zones []string) {
	of := map[string][]string{}
	for i := 0; i+1 < len(tokens); i++ {
		if tokens[i].Text != "disable" {
			continue
		}
		kind := tokens[i+1].Text
		for i += 2; i < len(tokens) && tokens[i].Line == tokens[i-1].Line; i++ {
			of[kind] = append(of[kind], plugin.Host(tokens[i].Text).NormalizeExact()...)
		}
		i--
	}
	return slices.DeleteFunc(of["success"], func(z string) bool { return !slices.Contains(of["denial"], z) })
}

// direct says that a block has no directive between its cache and the names of the cluster.
func direct(b caddyfile.ServerBlock) bool {
	between := directives[slices.Index(directives, "cache")+1 : slices.Index(directives, "kubernetes")]
	return b.Tokens["kubernetes"] != nil && !slices.ContainsFunc(between, func(name string) bool { return b.Tokens[name] != nil })
}

// Name is the plugin's name.
func (*shortcut) Name() string { return "shortcut" }

// ServeDNS passes one message on, to the cache or past it.
func (s *shortcut) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if s.to != nil {
		name := (&request.Request{W: w, Req: m}).Name()
		if zone := s.to.names.rules.zone(name); zone != "" && slices.Contains(s.zones, zone) {
			return plugin.NextOrFailure(s.to.Name(), s.to, ctx, w, m)
		}
	}
	return plugin.NextOrFailure(s.Name(), s.next, ctx, w, m)
}
