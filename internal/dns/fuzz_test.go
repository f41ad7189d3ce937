package dns

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// FuzzZones says of any names what the library says.
func FuzzZones(f *testing.F) {
	for _, c := range [][2]string{{".", "a."}, {"a.", "a."}, {"b.", "a.b."}, {"b.", "ab."}, {"b.", "a\\.b."}, {"b.", ".b."}, {"b.c.", "c."}} {
		f.Add(c[0], c[1])
	}
	f.Fuzz(func(t *testing.T, zone, name string) {
		zone, name = strings.ToLower(dns.Fqdn(zone)), strings.ToLower(dns.Fqdn(name))
		if _, ok := dns.IsDomainName(zone); !ok || strings.Contains(zone, "\\") {
			return // no Corefile has it
		}
		packed := make([]byte, 512)
		n, err := dns.PackDomainName(name, packed, 0, nil, false)
		if err != nil {
			return // no question has it
		}
		name, _, err = dns.UnpackDomainName(packed[:n], 0)
		if err != nil {
			return
		}
		if got, want := within(zone, strings.ToLower(name)), dns.IsSubDomain(zone, name); got != want {
			t.Errorf("%q in %q: got %v, want %v", name, zone, got, want)
		}
	})
}

// FuzzAnswers asks for any name of any type: answers are about the name asked
// for, of the type asked for or a CNAME, and a name that has records exists.
func FuzzAnswers(f *testing.F) {
	for _, name := range []string{
		"web.shop.svc.cluster.local.", "_http._tcp.web.shop.svc.cluster.local.", "10-244-1-2.shop.pod.cluster.local.", "a.pods.shop.svc.cluster.local.",
		"svc.cluster.local.", "cluster.local.", ".cluster.local.", "..svc.cluster.local.", "_._.web.shop.svc.cluster.local.", "dns-version.cluster.local.", "-.shop.pod.cluster.local.",
	} {
		f.Add(name, dns.TypeA)
		f.Add(name, dns.TypeSRV)
	}
	o := newObjects()
	o.Put(parseObjects(f, shop)...)
	names := NewNames(newView(o, "n1"), rulesOf("cluster.local."), netip.Addr{})
	f.Fuzz(func(t *testing.T, name string, qtype uint16) {
		a := names.Resolve("cluster.local.", name, qtype)
		if !a.Exists && len(a.Records) > 0 {
			t.Errorf("%q: got records of a name that does not exist: %v", name, a.Records)
		}
		for _, r := range a.Records {
			if h := r.Header(); h.Name != name || h.Rrtype != qtype && h.Rrtype != dns.TypeCNAME || h.Ttl != defaultTTL && h.Ttl != versionTTL {
				t.Errorf("%q %d: got %s", name, qtype, r)
			}
		}
	})
}
