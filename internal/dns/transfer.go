package dns

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/coredns/coredns/plugin/pkg/dnsutil"
	"github.com/coredns/coredns/plugin/transfer"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

var _ transfer.Transferer = (*handler)(nil)

// Transfer gives CoreDNS' plugin transfer a zone, or its SOA alone where who asks has it as it is now: serial is
// that of his copy, 0 if he has none. A zone of addresses is nobody's to copy.
func (h *handler) Transfer(zone string, serial uint32) (<-chan []dns.RR, error) {
	if !ofNames(zone) || !slices.Contains(h.names.rules.Zones, zone) {
		return nil, transfer.ErrNotAuthoritative
	}
	soa := h.soa(zone)
	all := make(chan []dns.RR, 3) // as many as there are: nobody has to wait for who reads them
	defer close(all)
	all <- []dns.RR{soa}
	if serial != 0 && int32(serial-soa.Serial) >= 0 { // serials go round
		return all, nil
	}
	all <- h.names.all(zone)
	all <- []dns.RR{soa}
	return all, nil
}

// all are the records of a zone, but for those that say the same of names beside: endpoints have names of their
// own below headless services alone.
func (n *Names) all(zone string) []dns.RR {
	l := listing{n, zone, nil}
	l.ask(zone, dns.TypeNS)
	if n.server.IsValid() {
		l.ask(dnsutil.Join("ns.dns", zone), dns.TypeA, dns.TypeAAAA)
	}
	for _, svc := range n.view.Services() {
		if n.view.Namespace(svc.Namespace) != nil {
			l.service(svc)
		}
	}
	return l.records
}

// listing are the records of a zone, as questions about its names find them.
type listing struct {
	*Names
	zone    string
	records []dns.RR
}

// ask adds what is answered about a name.
func (l *listing) ask(name string, types ...uint16) {
	for _, t := range types {
		l.records = append(l.records, l.Resolve(l.zone, strings.ToLower(name), t).Records...)
	}
}

func (l *listing) service(svc *corev1.Service) {
	name := l.nameOf(svc, l.zone)
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		l.ask(name, dns.TypeCNAME)
		return
	}
	l.ask(name, dns.TypeA, dns.TypeAAAA, dns.TypeSRV)
	ports := map[string]bool{}
	for _, p := range svc.Spec.Ports {
		ports[portLabels(p.Name, p.Protocol)] = true
	}
	if headless(svc) {
		var own []dns.RR
		q := question{Names: l.Names}
		q.each(svc, func(s *discoveryv1.EndpointSlice, e *discoveryv1.Endpoint, ip netip.Addr) {
			own = append(own, l.record(l.rules.label(e, ip)+"."+name, ip))
			for i := range s.Ports {
				if p := &s.Ports[i]; complete(p) {
					ports[portLabels(*p.Name, *p.Protocol)] = true
				}
			}
		})
		l.records = append(l.records, dedupe(own)...)
	}
	for _, labels := range slices.Sorted(maps.Keys(ports)) {
		if !strings.HasPrefix(labels, "_.") { // a port without a name
			l.ask(labels+"."+name, dns.TypeSRV)
		}
	}
}

// portLabels are those by which a port is asked for.
func portLabels(name string, protocol corev1.Protocol) string {
	return "_" + name + "._" + strings.ToLower(string(protocol))
}
