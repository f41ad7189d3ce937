package dns

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// guard is the plugin loop: it refuses what would be sent on once a question that was sent
// on has come back. CoreDNS' own ends the process then.
type guard struct {
	next   plugin.Handler
	log    *slog.Logger
	name   string // that nobody else asks for
	looped atomic.Bool
}

// loop sets the directive up. The question is sent when the servers listen.
func (l *loading) loop(c *caddy.Controller) error {
	zone := "loop.kemudi.invalid."
	for n := 0; c.Next(); n++ {
		switch {
		case n > 0:
			return plugin.Error("loop", plugin.ErrOnce)
		case c.NextArg():
			return plugin.Error("loop", c.ArgErr())
		}
	}
	if z := plugin.Host(c.Key).NormalizeExact(); len(z) > 0 && z[0] != "." {
		zone = z[0]
	}
	g := &guard{log: l.s.o.Logger, name: strings.ToLower(rand.Text()) + "." + zone}
	l.guards = append(l.guards, g)
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		g.next = next
		return g
	})
	return nil
}

// Name is the plugin's name.
func (*guard) Name() string { return "loop" }

// ServeDNS passes one message on, unless it would come back.
func (g *guard) ServeDNS(ctx context.Context, w dns.ResponseWriter, m *dns.Msg) (int, error) {
	if (&request.Request{W: w, Req: m}).Name() == g.name && !g.looped.Swap(true) {
		g.log.Error("the dns servers that questions are forwarded to send them back here: only cluster names are answered until they are changed")
	}
	if g.looped.Load() {
		return dns.RcodeRefused, nil
	}
	return plugin.NextOrFailure(g.Name(), g.next, ctx, w, m)
}

// probe asks all servers that questions are sent on to for names that nobody else asks for:
// should such a question come back here, they forward to us, and nothing would ever be answered.
func (c *config) probe(ctx context.Context) {
	asked := slices.Clone(c.targets)
	slices.SortFunc(asked, netip.AddrPort.Compare)
	for _, at := range slices.Compact(asked) {
		for _, g := range c.guards {
			if ctx.Err() != nil {
				return
			}
			send(ctx, at, g.name)
		}
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
