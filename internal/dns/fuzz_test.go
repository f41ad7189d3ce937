package dns

import (
	"testing"

	"github.com/miekg/dns"
)

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
	view := newView(o)
	f.Fuzz(func(t *testing.T, name string, qtype uint16) {
		a := Resolve(view, "cluster.local.", name, qtype)
		if !a.Exists && len(a.Records) > 0 {
			t.Errorf("%q: got records of a name that does not exist: %v", name, a.Records)
		}
		for _, r := range a.Records {
			if h := r.Header(); h.Name != name || h.Rrtype != qtype && h.Rrtype != dns.TypeCNAME || h.Ttl != ttl {
				t.Errorf("%q %d: got %s", name, qtype, r)
			}
		}
	})
}
