package dns

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/kemudi/kemudi/test/wait"
)

// copied asks for a copy of a zone; have is the serial of the one that there is, 0: none. The records are
// without their times.
func (r *running) copied(zone string, have uint32) (records []string, err error) {
	m := new(dns.Msg)
	if m.SetAxfr(zone); have > 0 {
		m.SetIxfr(zone, have, "ns.example.", "me.example.")
	}
	all, err := (&dns.Transfer{DialTimeout: wait.Patience, ReadTimeout: wait.Patience}).In(m, r.where("tcp", dnsAt))
	if err != nil {
		return nil, err
	}
	for e := range all {
		if e.Error != nil {
			return records, e.Error
		}
		for _, rr := range e.RR {
			records = append(records, rr.Header().Name+" "+text(rr))
		}
	}
	return records, nil
}

func TestZoneIsCopiedWhereTheCorefileLetsIt(t *testing.T) {
	t.Parallel()
	r := run(t, shop+`---
kind: Service
metadata: {namespace: shop, name: out}
spec: {type: ExternalName, externalName: www.example.org}
---
kind: Service
metadata: {namespace: gone, name: of-no-namespace}
spec: {clusterIPs: [10.96.0.99]}
`)
	if _, err := r.copied("cluster.local.", 0); err == nil || !strings.Contains(err.Error(), "xfr rcode: 5") {
		t.Errorf("without the directive: got %v, want it refused", err)
	}
	r.corefile(with("transfer {\n to *\n}"))
	var got []string
	wait.Until(t, func() (err error) {
		got, err = r.copied("cluster.local.", 0)
		return err
	})
	soa := fmt.Sprintf("cluster.local. SOA ns.dns.cluster.local. hostmaster.cluster.local. %d 7200 1800 86400 30", r.s.view.serial())
	if len(got) < 2 || got[0] != soa || got[len(got)-1] != soa {
		t.Fatalf("got %q, want it to begin and end with %s", got, soa)
	}
	got = got[1 : len(got)-1]
	want := []string{
		"cluster.local. NS ns.dns.cluster.local.",
		"ns.dns.cluster.local. A 10.96.0.10",
		"out.shop.svc.cluster.local. CNAME www.example.org.",
		"pods.shop.svc.cluster.local. A 10.244.1.2",
		"pods.shop.svc.cluster.local. A 10.244.1.3",
		"pods.shop.svc.cluster.local. SRV 0 50 8080 a.pods.shop.svc.cluster.local.",
		"pods.shop.svc.cluster.local. SRV 0 50 8080 10-244-1-3.pods.shop.svc.cluster.local.",
		"10-244-1-3.pods.shop.svc.cluster.local. A 10.244.1.3",
		"a.pods.shop.svc.cluster.local. A 10.244.1.2",
		"_http._tcp.pods.shop.svc.cluster.local. SRV 0 50 8080 a.pods.shop.svc.cluster.local.",
		"_http._tcp.pods.shop.svc.cluster.local. SRV 0 50 8080 10-244-1-3.pods.shop.svc.cluster.local.",
		"web.shop.svc.cluster.local. A 10.96.0.88",
		"web.shop.svc.cluster.local. AAAA fd00:96::88",
		"web.shop.svc.cluster.local. SRV 0 50 80 web.shop.svc.cluster.local.",
		"_http._tcp.web.shop.svc.cluster.local. SRV 0 50 80 web.shop.svc.cluster.local.",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := r.copied("in-addr.arpa.", 0); err == nil {
		t.Error("a zone of addresses was copied")
	}
	if m := r.ask("udp", "AXFR", "cluster.local"); m.Rcode != dns.RcodeRefused {
		t.Errorf("over UDP: got %s, want REFUSED", dns.RcodeToString[m.Rcode])
	}
}

func TestCopyIsMadeAnewWhenTheZoneHasChanged(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	r.corefile(with("transfer {\n to *\n}"))
	wait.Until(t, func() error {
		_, err := r.copied("cluster.local.", 0)
		return err
	})
	serial := r.s.view.serial()
	if got, err := r.copied("cluster.local.", serial); err != nil || len(got) != 1 {
		t.Errorf("a copy of now: got %q, %v, want the SOA alone", got, err)
	}
	r.apply(t, "kind: Service\nmetadata: {namespace: shop, name: new}\nspec: {clusterIPs: [10.96.0.91]}\n")
	if got, err := r.copied("cluster.local.", serial); err != nil || !slices.Contains(got, "new.shop.svc.cluster.local. A 10.96.0.91") {
		t.Errorf("a copy of before: got %q, %v, want all, with the new service", got, err)
	}
}
