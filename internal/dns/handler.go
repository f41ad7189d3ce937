package dns

import (
	"context"
	"math/rand/v2"
	"net/netip"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	resolver "github.com/coredns/coredns/plugin/pkg/upstream"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

// handler is the CoreDNS plugin that answers for the cluster's names and
// addresses.
type handler struct {
	next plugin.Handler
	view View
	zone string
}

// Name is the plugin's name.
func (h *handler) Name() string { return "kemudi" }

// ServeDNS answers one message, or passes it on.
func (h *handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	name, qtype := state.Name(), state.QType()
	if dns.IsSubDomain(h.zone, name) {
		return dns.RcodeSuccess, h.reply(ctx, &state, Resolve(h.view, h.zone, name, qtype))
	}
	if ip, ok := reverseAddress(name); ok {
		if a := Reverse(h.view, h.zone, name, ip); a.Exists {
			if qtype != dns.TypePTR {
				a.Records = nil
			}
			return dns.RcodeSuccess, h.reply(ctx, &state, a)
		}
	}
	return plugin.NextOrFailure(h.Name(), h.next, ctx, w, r)
}

func reverseAddress(name string) (netip.Addr, bool) {
	s := dnsutil.ExtractAddressFromReverse(name)
	if s == "" {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(s)
	return ip, err == nil
}

// reply writes an answer: names without records of the type get the zone's SOA,
// so that clients know how long to remember it.
func (h *handler) reply(ctx context.Context, state *request.Request, a Answer) error {
	m := new(dns.Msg)
	m.SetReply(state.Req)
	m.Authoritative, m.RecursionAvailable = true, true
	m.Answer = a.Records
	// Many clients take the first address only.
	rand.Shuffle(len(m.Answer), func(i, j int) { m.Answer[i], m.Answer[j] = m.Answer[j], m.Answer[i] })
	if a.Chase != "" {
		m.Answer = append(m.Answer, h.chase(ctx, state, a.Chase)...)
	}
	for _, r := range m.Answer { // the name as the client wrote it: some compare letter by letter
		if r.Header().Name == state.Name() {
			r.Header().Name = state.QName()
		}
	}
	switch {
	case !a.Exists:
		m.Rcode = dns.RcodeNameError
		m.Ns = []dns.RR{h.soa()}
	case state.QType() == dns.TypeSOA && state.Name() == h.zone:
		m.Answer = []dns.RR{h.soa()}
	case len(m.Answer) == 0:
		m.Ns = []dns.RR{h.soa()}
	}
	m.Extra = a.Extra
	state.SizeAndDo(m)
	state.Scrub(m)
	return state.W.WriteMsg(m)
}

// maxChain is how many names of the cluster may lead from one to the next.
const maxChain = 8

// chase resolves the target of a CNAME, inside the cluster or outside.
func (h *handler) chase(ctx context.Context, state *request.Request, target string) []dns.RR {
	var found []dns.RR
	for range maxChain {
		if !dns.IsSubDomain(h.zone, target) {
			m, err := resolver.New().Lookup(ctx, *state, target, state.QType())
			if err != nil || m == nil {
				return found // the client sees the CNAME and may ask itself
			}
			return append(found, m.Answer...)
		}
		a := Resolve(h.view, h.zone, target, state.QType())
		found = append(found, a.Records...)
		if a.Chase == "" {
			return found
		}
		target = a.Chase
	}
	return nil // they lead in a circle
}

func (h *handler) soa() dns.RR {
	return &dns.SOA{
		Hdr: header(h.zone, dns.TypeSOA), Ns: "ns.dns." + h.zone, Mbox: "hostmaster." + h.zone,
		Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: ttl,
	}
}
