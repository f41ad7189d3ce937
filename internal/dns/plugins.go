package dns

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	// CoreDNS' plugins, which make themselves known to it.
	_ "github.com/coredns/coredns/plugin/any"
	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/cancel"
	_ "github.com/coredns/coredns/plugin/dns64"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/header"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/local"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/metadata"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/root"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/transfer"
	_ "github.com/coredns/coredns/plugin/whoami"
)

// directives are those that a Corefile may have, in the order in which a question passes
// them: CoreDNS' own order. Those that loading.setup names are ours, the others CoreDNS'.
var directives = []string{
	"root", "metadata", "cancel", "reload", "nsid", "bufsize", "bind", "ready", "health", "prometheus", "errors", "log", "local", "dns64", "any",
	"loadbalance", "rewrite", "autopath", "cache", "header", "minimal", "template", "transfer", "hosts", "kubernetes", "file", "loop", "forward", "whoami",
}

// setup sets up a directive. Ours are those that CoreDNS has for a process of its own with
// a network of its own: they would listen on all addresses of the machine, share what they
// know with other servers of the process, end the process when questions go round, or look
// at files for changes.
func (l *loading) setup(p place, name string) error {
	switch name {
	case "kubernetes":
		return l.kubernetes(p.at(name))
	case "cache":
		return l.cache(p)
	case "forward":
		return l.forward(p)
	case "autopath":
		return l.autopath(p)
	case "hosts":
		return l.hosts(p)
	case "loop":
		return l.loop(p.at(name))
	case "reload":
		return reload(p.at(name))
	case "bind":
		return l.bind(p.at(name))
	case "health", "ready", "prometheus":
		return l.page(p.at(name), name)
	}
	return theirs(p, name, p.block.Tokens[name])
}

// theirs sets up a directive by CoreDNS' plugin.
func theirs(p place, name string, tokens []caddyfile.Token) error {
	setup, err := caddy.DirectiveAction("dns", name)
	if err != nil {
		return fmt.Errorf("plugin %s: %w", name, err)
	}
	c := p.at(name)
	c.Dispenser = caddyfile.NewDispenserTokens(p.file, tokens)
	return setup(c)
}

// kubernetes answers for the cluster's names, from what this process knows.
func (l *loading) kubernetes(c *caddy.Controller) error {
	rules, err := parseRules(c)
	if err != nil {
		return plugin.Error("kubernetes", err)
	}
	h := &handler{
		names: NewNames(l.s.view, rules, l.s.o.ServiceIP), shares: l.s.o.Share, search: searches(l.s.o.ResolvConf),
		asks: l.s.serverFor, serial: l.s.view.serial,
	}
	config := dnsserver.GetConfig(c)
	config.AddPlugin(func(next plugin.Handler) plugin.Handler {
		h.next = next
		return h
	})
	if s := l.shortcuts[config]; s != nil {
		s.to = h
	}
	l.stubs(config)
	return nil
}

// reload checks the directive, and has nothing to do: changes of the config map are
// followed as they happen.
func reload(c *caddy.Controller) error {
	for c.Next() {
		args := c.RemainingArgs()
		if len(args) > 2 {
			return plugin.Error("reload", c.ArgErr())
		}
		for _, a := range args {
			if _, err := time.ParseDuration(a); err != nil {
				return plugin.Error("reload", err)
			}
		}
	}
	return nil
}

// bind checks the directive: these servers have addresses, and a Corefile may repeat them.
func (l *loading) bind(c *caddy.Controller) error {
	for c.Next() {
		for _, a := range c.RemainingArgs() {
			if err := l.ours(a); err != nil {
				return plugin.Error("bind", c.Err(err.Error()))
			}
		}
		for c.NextBlock() {
			return plugin.Error("bind", c.Errf("%s is not supported", c.Val()))
		}
	}
	return nil
}

// ours refuses hosts that are not where these servers listen. Those that mean all addresses,
// or the machine itself, mean in a pod the pod.
func (l *loading) ours(host string) error {
	if host == "" || host == "localhost" {
		return nil
	}
	ip, err := netip.ParseAddr(host)
	if err == nil && (ip.IsUnspecified() || ip.IsLoopback() || slices.ContainsFunc(l.s.o.Addresses, func(a netip.AddrPort) bool { return a.Addr() == ip })) {
		return nil
	}
	return fmt.Errorf("%s is not an address of these servers, which are %v", host, l.s.o.Addresses)
}

// portOf is the port of an address on which something of a Corefile is to be served.
func (l *loading) portOf(address string) (uint16, error) {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return 0, err
	}
	p, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("port %q: %w", number, err)
	}
	return uint16(p), l.ours(host)
}

// autopath is CoreDNS'; only that the machine's file may be another one.
func (l *loading) autopath(p place) error {
	tokens := slices.Clone(p.block.Tokens["autopath"])
	for i := range tokens {
		if tokens[i].Text == machineServers {
			tokens[i].Text = l.s.o.ResolvConf
		}
	}
	return theirs(p, "autopath", tokens)
}

// hosts is CoreDNS'. Without a file it has no other names than those in the Corefile: the
// machine's are not the cluster's.
func (l *loading) hosts(p place) error {
	tokens := p.block.Tokens["hosts"]
	if len(tokens) == 1 || tokens[1].Text == "{" || tokens[1].Line != tokens[0].Line {
		none := tokens[0]
		none.Text = os.DevNull
		tokens = slices.Insert(slices.Clone(tokens), 1, none)
	}
	return theirs(p, "hosts", tokens)
}
