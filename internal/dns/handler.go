package dns

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	resolver "github.com/coredns/coredns/plugin/pkg/upstream"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

// handler is the CoreDNS plugin that answers for the cluster's names and
// addresses, in the place of CoreDNS' own of that name.
type handler struct {
	next   plugin.Handler
	names  *Names
	shares []netip.Prefix                 // of the pod addresses: this node's
	search []string                       // of the machine, in which pods look after the cluster's domains
	asks   func(ip netip.Addr) netip.Addr // the server on the node of a pod elsewhere; invalid: none
	serial func() uint32                  // of the zones, as they are now
}

// Name is the plugin's name.
func (h *handler) Name() string { return "kubernetes" }

// ServeDNS answers one message, or passes it on.
func (h *handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	name, qtype := state.Name(), state.QType()
	zone := h.names.rules.zone(name)
	if zone == "" {
		return plugin.NextOrFailure(h.Name(), h.next, ctx, w, r)
	}
	var a Answer
	switch {
	case qtype == dns.TypeAXFR || qtype == dns.TypeIXFR:
		return dns.RcodeRefused, nil
	case ofNames(zone):
		if m := h.otherNode(ctx, r, zone, name); m != nil {
			return dns.RcodeSuccess, w.WriteMsg(m)
		}
		a = h.names.Resolve(zone, name, qtype)
	case name == zone:
		a = h.names.Resolve(zone, name, qtype)
	default:
		if ip, ok := reverseAddress(name); ok {
			a = h.names.Reverse(name, ip)
		}
		if qtype != dns.TypePTR {
			a.Records = nil
		}
	}
	if !a.Exists && h.names.rules.Fall.Through(name) {
		return plugin.NextOrFailure(h.Name(), h.next, ctx, w, r)
	}
	return dns.RcodeSuccess, h.reply(ctx, &state, zone, a)
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
func (h *handler) reply(ctx context.Context, state *request.Request, zone string, a Answer) error {
	m := new(dns.Msg)
	m.SetReply(state.Req)
	m.Authoritative, m.RecursionAvailable = true, true
	m.Answer = a.Records
	// Many clients take the first address only.
	rand.Shuffle(len(m.Answer), func(i, j int) { m.Answer[i], m.Answer[j] = m.Answer[j], m.Answer[i] })
	if a.Chase != "" {
		more, cut := h.chase(ctx, state, zone, a.Chase)
		m.Answer, m.Truncated = append(m.Answer, more...), cut
	}
	for _, r := range m.Answer { // the name as the client wrote it: some compare letter by letter
		if r.Header().Name == state.Name() {
			r.Header().Name = state.QName()
		}
	}
	named := state.QName()[len(state.QName())-len(zone):] // the zone as the client wrote it
	switch {
	case !a.Exists:
		m.Rcode = dns.RcodeNameError
		m.Ns = []dns.RR{h.soa(named)}
	case state.QType() == dns.TypeSOA && state.Name() == zone:
		m.Answer = []dns.RR{h.soa(named)}
	case len(m.Answer) == 0:
		m.Ns = []dns.RR{h.soa(named)}
	}
	m.Extra = a.Extra
	return state.W.WriteMsg(m) // the server cuts it to what the client takes
}

// maxChain is how many names of the cluster may lead from one to the next.
const maxChain = 8

// chase resolves the target of a CNAME, inside the zone or outside. cut says that the servers outside had more
// than fits the way on which they were asked, which is the client's: it must ask again by TCP.
func (h *handler) chase(ctx context.Context, state *request.Request, zone, target string) (found []dns.RR, cut bool) {
	for range maxChain {
		if !dns.IsSubDomain(zone, target) {
			m, err := resolver.New().Lookup(ctx, *state, target, state.QType())
			if err != nil || m == nil {
				return found, false // the client sees the CNAME and may ask itself
			}
			return append(found, m.Answer...), m.Truncated
		}
		a := h.names.Resolve(zone, target, state.QType())
		found = append(found, a.Records...)
		if a.Chase == "" {
			return found, false
		}
		target = a.Chase
	}
	return nil, false // they lead in a circle
}

// maxSOATTL is for how long a SOA itself may be remembered at the most, in seconds, however long records may be.
const maxSOATTL = 300

func (h *handler) soa(zone string) *dns.SOA {
	soa := &dns.SOA{
		Hdr: h.names.header(zone, dns.TypeSOA), Ns: dnsutil.Join("ns.dns", zone), Mbox: dnsutil.Join("hostmaster", zone),
		Serial: h.serial(), Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: h.names.rules.TTL,
	}
	soa.Hdr.Ttl = min(soa.Hdr.Ttl, maxSOATTL)
	return soa
}

// otherNodeWait is how long the server of another node may take to say whether it has a pod.
const otherNodeWait = 2 * time.Second

// otherNode asks where a pod must be, if it is there: only its own node's server knows. Nil:
// the question is none for others, or they do not answer.
func (h *handler) otherNode(ctx context.Context, r *dns.Msg, zone, name string) *dns.Msg {
	if h.names.rules.Pods != PodsVerified || h.asks == nil {
		return nil
	}
	labels := dns.SplitDomainName(name)
	if len(labels) != dns.CountLabel(zone)+3 || labels[2] != "pod" {
		return nil
	}
	ip, ok := undash(labels[0])
	if !ok || slices.ContainsFunc(h.shares, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	at := h.asks(ip)
	if !at.IsValid() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, otherNodeWait)
	defer cancel()
	m, _, err := (&dns.Client{Net: "udp"}).ExchangeContext(ctx, r.Copy(), netip.AddrPortFrom(at, port).String())
	if err != nil {
		return nil
	}
	return m
}

// AutoPath is where the pod that asks looks for names, one after the other, for CoreDNS'
// plugin autopath to do it in its stead. Nil: it is no pod of this node.
func (h *handler) AutoPath(state request.Request) []string {
	zone, pod := h.names.rules.zone(state.Name()), h.client(&state)
	if zone == "" || pod == nil {
		return nil
	}
	search := []string{dnsutil.Join(pod.Namespace+".svc", zone), dnsutil.Join("svc", zone), zone}
	return append(append(search, h.search...), "") // the name itself comes last
}

// client is the pod that asks, where pods are verified. Nil: it is none of this node.
func (h *handler) client(state *request.Request) *corev1.Pod {
	ip, err := netip.ParseAddr(state.IP())
	if err != nil || h.names.rules.Pods != PodsVerified {
		return nil
	}
	if pods := h.names.view.PodsAt(ip.Unmap()); len(pods) > 0 {
		return pods[0]
	}
	return nil
}
