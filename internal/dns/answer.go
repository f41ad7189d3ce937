package dns

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// View is what answers are made from.
type View interface {
	Namespace(name string) *corev1.Namespace                 // nil: none
	Service(namespace, name string) *corev1.Service          // nil: none
	Services() []*corev1.Service                             // all
	Slices(svc *corev1.Service) []*discoveryv1.EndpointSlice // of the service
	// ByAddress finds what has an address: the service with that cluster IP, or
	// else the endpoints.
	ByAddress(ip netip.Addr) []Owner
	// PodsAt lists the pods with an address, of those that are known.
	PodsAt(ip netip.Addr) []*corev1.Pod
}

// Owner has an address: a service, or, with Endpoint, one of its endpoints.
type Owner struct {
	Service  *corev1.Service
	Endpoint *discoveryv1.Endpoint // nil: the service itself
}

// Answer is the outcome of a question about the cluster's names.
type Answer struct {
	Records []dns.RR
	Extra   []dns.RR // addresses of the targets in Records
	Exists  bool     // the name exists, if not with records of this type
	// Chase is set with a CNAME to a name outside of the cluster: the resolver
	// must ask further.
	Chase string
}

// asked is what a question about the ports of a service names of them; what is empty matches all.
type asked struct {
	port, proto string // labels such as _http and _tcp
	endpoint    string // the label of one endpoint
}

func (k asked) matches(port string, proto corev1.Protocol) bool {
	return (k.port == "" || k.port == "_"+port) && (k.proto == "" || k.proto == "_"+strings.ToLower(string(proto)))
}

// Names are those of a cluster, as the rules of a Corefile have them.
type Names struct {
	view  View
	rules Rules
	// server is the address by which clients reach these servers: the one of ns.dns.
	// None: the zone names no server.
	server netip.Addr
}

// NewNames returns the names of what view shows, as far as the rules let it be seen.
func NewNames(view View, rules Rules, server netip.Addr) *Names {
	if rules.limited() {
		view = limited{view, &rules}
	}
	return &Names{view, rules, server}
}

// question is a question about a name of the cluster.
type question struct {
	*Names
	zone  string // "cluster.local."
	name  string // the full name as asked
	qtype uint16
}

// Resolve answers a question about a name below zone, which is one of the rules' zones;
// both end in a dot and are in lower case.
func (n *Names) Resolve(zone, name string, qtype uint16) Answer {
	q := question{n, zone, name, qtype}
	rest := strings.TrimSuffix(strings.TrimSuffix(name, zone), ".")
	labels := strings.Split(rest, ".")
	last := labels[len(labels)-1]
	switch {
	case rest == "":
		return q.apex()
	case rest == "dns-version":
		return q.version()
	case rest == "dns" && n.server.IsValid():
		return Answer{Exists: true}
	case rest == "ns.dns" && n.server.IsValid():
		return q.nameserver()
	case last == "svc":
		return q.service(labels[:len(labels)-1])
	case last == "pod":
		return q.pod(labels[:len(labels)-1])
	}
	return Answer{}
}

// apex answers for the zone itself, which these servers are the only ones to know.
func (q *question) apex() Answer {
	a := Answer{Exists: true}
	if q.qtype == dns.TypeNS && q.server.IsValid() {
		ns, ips := q.servers(q.zone)
		a.Records = []dns.RR{&dns.NS{Hdr: q.header(q.name, dns.TypeNS), Ns: ns}}
		for _, ip := range ips {
			a.Extra = append(a.Extra, q.record(ns, ip))
		}
	}
	return a
}

// servers is by which name and addresses a zone says that these servers are to be found: those of
// the Service that clients reach them by, where there is one.
func (n *Names) servers(zone string) (name string, ips []netip.Addr) {
	if !ofNames(zone) {
		zone = n.rules.primary()
	}
	for _, o := range n.view.ByAddress(n.server) {
		if o.Endpoint == nil {
			return n.nameOf(o.Service, zone), clusterIPs(o.Service)
		}
	}
	return dnsutil.Join("ns.dns", zone), []netip.Addr{n.server}
}

// nameserver answers for ns.dns, which the zone's SOA names.
func (q *question) nameserver() Answer {
	a := Answer{Exists: true}
	_, ips := q.servers(q.zone)
	for _, ip := range ips {
		a.Records = append(a.Records, q.address(q.name, ip)...)
	}
	return a
}

// versionTTL is for how long clients may remember the version of the specification, in seconds.
const versionTTL = 28800

func (q *question) version() Answer {
	a := Answer{Exists: true}
	if q.qtype == dns.TypeTXT {
		a.Records = []dns.RR{&dns.TXT{Hdr: q.header(q.name, dns.TypeTXT), Txt: []string{"1.1.0"}}}
		a.Records[0].Header().Ttl = versionTTL
	}
	return a
}

// pod answers a-b-c-d.namespace.pod: the address in the name, if the namespace exists, and,
// where pods are verified, the pod.
func (q *question) pod(labels []string) Answer {
	if q.rules.Pods == PodsDisabled {
		return Answer{}
	}
	switch len(labels) {
	case 0:
		return Answer{Exists: true}
	case 1:
		return Answer{Exists: q.view.Namespace(labels[0]) != nil}
	case 2:
	default:
		return Answer{}
	}
	ip, ok := undash(labels[0])
	if !ok || q.view.Namespace(labels[1]) == nil {
		return Answer{}
	}
	if q.rules.Pods == PodsVerified && !slices.ContainsFunc(q.view.PodsAt(ip), func(p *corev1.Pod) bool { return p.Namespace == labels[1] }) {
		return Answer{}
	}
	return Answer{Exists: true, Records: q.address(q.name, ip)}
}

// undash reads an address that is written with dashes.
func undash(label string) (netip.Addr, bool) {
	if ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil && ip.Is4() {
		return ip, true
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ":"))
	return ip, err == nil && ip.Is6()
}

// dashed writes an address as a label, which must not end in a dash.
func dashed(ip netip.Addr) string {
	label := strings.NewReplacer(".", "-", ":", "-").Replace(ip.String())
	if strings.HasSuffix(label, "-") {
		label += "0"
	}
	return label
}

// service answers [[_port._proto | endpoint.]service.]namespace.svc.
func (q *question) service(labels []string) Answer {
	n := len(labels)
	switch n {
	case 0:
		return Answer{Exists: true}
	case 1:
		return Answer{Exists: q.view.Namespace(labels[0]) != nil}
	}
	svc := q.view.Service(labels[n-1], labels[n-2])
	if svc == nil || q.rules.IgnoreEmpty && q.empty(svc) {
		return Answer{}
	}
	switch n {
	case 2:
		return q.whole(svc)
	case 3:
		if strings.HasPrefix(labels[0], "_") { // only a part of the names of ports
			return Answer{Exists: q.ports(svc, asked{proto: labels[0]}).Exists}
		}
		return q.endpoint(svc, labels[0])
	case 4:
		return q.ports(svc, asked{port: labels[0], proto: labels[1]})
	}
	return Answer{}
}

// empty says that a service with a cluster IP has nobody behind it.
func (q *question) empty(svc *corev1.Service) bool {
	if headless(svc) || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return false
	}
	empty := true
	q.each(svc, func(*discoveryv1.EndpointSlice, *discoveryv1.Endpoint, netip.Addr) { empty = false })
	return empty
}

// whole answers for the service's own name.
func (q *question) whole(svc *corev1.Service) Answer {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return q.external(svc)
	}
	a := Answer{Exists: true}
	if q.qtype == dns.TypeSRV {
		a = q.ports(svc, asked{})
	}
	if !headless(svc) {
		a.Exists = true
		for _, ip := range clusterIPs(svc) {
			a.Records = append(a.Records, q.address(q.name, ip)...)
		}
		return a
	}
	a.Exists = false // a headless service without endpoints has no name
	seen := map[netip.Addr]bool{}
	q.each(svc, func(_ *discoveryv1.EndpointSlice, _ *discoveryv1.Endpoint, ip netip.Addr) {
		a.Exists = true
		if !seen[ip] {
			seen[ip] = true
			a.Records = append(a.Records, q.address(q.name, ip)...)
		}
	})
	return a
}

// external answers with the other name. One that is written as an address is
// no name, and not taken for the address either.
func (q *question) external(svc *corev1.Service) Answer {
	a := Answer{Exists: true}
	if _, err := netip.ParseAddr(svc.Spec.ExternalName); err == nil {
		return a
	}
	if q.qtype != dns.TypeA && q.qtype != dns.TypeAAAA && q.qtype != dns.TypeCNAME {
		return a
	}
	target := dns.Fqdn(strings.ToLower(svc.Spec.ExternalName))
	a.Records = []dns.RR{&dns.CNAME{Hdr: q.header(q.name, dns.TypeCNAME), Target: target}}
	if q.qtype != dns.TypeCNAME {
		a.Chase = target
	}
	return a
}

// endpoint answers for one endpoint, by its hostname or its dashed address. The
// specification knows these names of headless services only; CoreDNS has them of
// all, and so pods that name a service with a cluster IP as theirs are found.
func (q *question) endpoint(svc *corev1.Service, label string) Answer {
	var a Answer
	if q.qtype == dns.TypeSRV {
		a = q.ports(svc, asked{endpoint: label})
	}
	q.each(svc, func(_ *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ip netip.Addr) {
		if q.rules.label(e, ip) == label {
			a.Exists = true
			a.Records = append(a.Records, q.address(q.name, ip)...)
		}
	})
	a.Records = dedupe(a.Records) // an endpoint may be in two slices
	return a
}

// maxLabel is how long a label may be; names of pods may be longer.
const maxLabel = 63

// label is the name of an endpoint below its service.
func (r *Rules) label(e *discoveryv1.Endpoint, ip netip.Addr) string {
	if name := deref(e.Hostname); name != "" {
		return strings.ToLower(name)
	}
	if ref := e.TargetRef; r.PodNames && ref != nil && ref.Kind == "Pod" && ref.Name != "" && len(ref.Name) <= maxLabel {
		return ref.Name
	}
	return dashed(ip)
}

// ports answers questions about the ports of a service: SRV ones with the ports, those for
// addresses with the addresses that have such a port.
func (q *question) ports(svc *corev1.Service, k asked) Answer {
	var a Answer
	name, matching := q.nameOf(svc, q.zone), 0
	add := func(portName string, protocol corev1.Protocol, number int32, target string, ip netip.Addr) {
		if !k.matches(portName, protocol) {
			return
		}
		a.Exists = true
		matching++
		if q.qtype != dns.TypeSRV {
			a.Records = append(a.Records, q.address(q.name, ip)...)
			return
		}
		a.Records = append(a.Records, &dns.SRV{Hdr: q.header(q.name, dns.TypeSRV), Port: uint16(number), Target: target})
		a.Extra = append(a.Extra, q.record(target, ip))
	}
	if headless(svc) || k.endpoint != "" {
		q.each(svc, func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ip netip.Addr) {
			label := q.rules.label(e, ip)
			if k.endpoint != "" && label != k.endpoint {
				return
			}
			for i := range s.Ports {
				if p := &s.Ports[i]; complete(p) {
					add(*p.Name, *p.Protocol, *p.Port, label+"."+name, ip)
				}
			}
		})
	} else {
		for _, ip := range clusterIPs(svc) {
			for _, p := range svc.Spec.Ports {
				add(p.Name, p.Protocol, p.Port, name, ip)
			}
		}
	}
	a.Records, a.Extra = dedupe(a.Records), dedupe(a.Extra)
	for _, r := range a.Records {
		if srv, ok := r.(*dns.SRV); ok {
			srv.Weight = weight(matching)
		}
	}
	return a
}

// complete says that a port has all that there is to tell of it.
func complete(p *discoveryv1.EndpointPort) bool {
	return p.Port != nil && p.Name != nil && p.Protocol != nil
}

// weight is that of a record where so many addresses and ports are alike: together they have a hundred. What
// has an address of each family counts twice, as with CoreDNS.
func weight(n int) uint16 { return uint16(max(1, 100/max(1, n))) }

// dedupe drops repeated records: a dual-stack service would have SRV records
// twice, one with several ports the addresses.
func dedupe(records []dns.RR) []dns.RR {
	var out []dns.RR
	seen := map[string]bool{}
	for _, r := range records {
		if s := r.String(); !seen[s] {
			seen[s] = true
			out = append(out, r)
		}
	}
	return out
}

// each calls fn with the endpoints of a service that are to be found: the ready
// ones (unready ones are marked as ready where the service publishes them).
func (q *question) each(svc *corev1.Service, fn func(*discoveryv1.EndpointSlice, *discoveryv1.Endpoint, netip.Addr)) {
	for _, s := range q.view.Slices(svc) {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !ready(e) {
				continue
			}
			for _, address := range e.Addresses {
				if ip, err := netip.ParseAddr(address); err == nil {
					fn(s, e, ip)
				}
			}
		}
	}
}

func ready(e *discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// Reverse answers a PTR question for an address: of a cluster IP with the
// service, of an endpoint with the names that it has below services. The specification
// knows those of headless services; CoreDNS has them of all.
func (n *Names) Reverse(name string, ip netip.Addr) Answer {
	var a Answer
	zone := n.rules.primary()
	for _, o := range n.view.ByAddress(ip) {
		target := n.nameOf(o.Service, zone)
		if e := o.Endpoint; e != nil {
			if !ready(e) {
				continue
			}
			target = n.rules.label(e, ip) + "." + target
		}
		a.Exists = true
		a.Records = append(a.Records, &dns.PTR{Hdr: n.header(name, dns.TypePTR), Ptr: target})
	}
	a.Records = dedupe(a.Records)
	return a
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// address is the record of an address, if its family was asked for.
func (q *question) address(name string, ip netip.Addr) []dns.RR {
	if r := q.record(name, ip); r.Header().Rrtype == q.qtype {
		return []dns.RR{r}
	}
	return nil
}

// nameOf is the name of a service in a zone.
func (*Names) nameOf(svc *corev1.Service, zone string) string {
	return dnsutil.Join(svc.Name+"."+svc.Namespace+".svc", zone)
}

func (n *Names) record(name string, ip netip.Addr) dns.RR {
	if ip.Is4() {
		return &dns.A{Hdr: n.header(name, dns.TypeA), A: ip.AsSlice()}
	}
	return &dns.AAAA{Hdr: n.header(name, dns.TypeAAAA), AAAA: ip.AsSlice()}
}

func (n *Names) header(name string, rrtype uint16) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: n.rules.TTL}
}

func headless(svc *corev1.Service) bool { return svc.Spec.ClusterIP == corev1.ClusterIPNone }

func clusterIPs(svc *corev1.Service) []netip.Addr {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	var out []netip.Addr
	for _, s := range ips {
		if ip, err := netip.ParseAddr(s); err == nil {
			out = append(out, ip)
		}
	}
	return out
}
