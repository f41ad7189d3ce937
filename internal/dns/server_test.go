package dns

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// running is a server that runs until the end of the test, and its objects.
type running struct {
	*objects
	t    testing.TB
	s    *Server
	log  *lockedBuffer
	said *notes
	stop func() // early
	at   struct {
		sync.Mutex
		real map[string]string // what is asked for, with its network, to where it is
	}
}

// Listen and ListenPacket open any port instead of the one that is asked for, and note it.
func (r *running) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, network, "127.0.0.1:0")
	if err == nil {
		r.note(network, address, l.Addr())
	}
	return l, err
}

func (r *running) ListenPacket(ctx context.Context, network, address string) (net.PacketConn, error) {
	c, err := (&net.ListenConfig{}).ListenPacket(ctx, network, "127.0.0.1:0")
	if err == nil {
		r.note(network, address, c.LocalAddr())
	}
	return c, err
}

func (r *running) note(network, address string, at net.Addr) {
	r.at.Lock()
	defer r.at.Unlock()
	r.at.real[network+" "+address] = at.String()
}

// where is where the server listens that was told to at an address.
func (r *running) where(network, address string) string {
	r.at.Lock()
	defer r.at.Unlock()
	return r.at.real[network+" "+address]
}

// dnsAt is where servers of tests are told to listen.
const dnsAt = "127.0.0.1:0"

// notes are events.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) Event(o resource.Object, kind, reason, message string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf("%s/%s %s %s: %s", o.GetNamespace(), o.GetName(), kind, reason, message))
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// run starts a server with these objects and no servers to forward to.
func run(t testing.TB, yaml string, change ...func(*Options)) *running {
	t.Helper()
	r := &running{objects: newObjects(), t: t, log: &lockedBuffer{}, said: &notes{}}
	r.at.real = map[string]string{}
	if yaml != "" {
		r.apply(t, yaml)
	}
	o := Options{
		Transport: r.objects, Addresses: []netip.AddrPort{netip.MustParseAddrPort(dnsAt)}, ServiceIP: netip.MustParseAddr("10.96.0.10"),
		ResolvConf: filepath.Join(t.TempDir(), "resolv.conf"), NodeName: "n1", Dir: filepath.Join(t.TempDir(), "dns"),
		Events: r.said, Listen: r, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	for _, c := range change {
		c(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	g := task.NewGroup(t.Context())
	g.Go("dns", s.Run)
	r.stop = sync.OnceFunc(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	t.Cleanup(r.stop)
	select {
	case <-s.Ready():
	case <-g.Context().Done():
		t.Fatalf("the server has ended: %v", g.Wait())
	case <-time.After(wait.Patience):
		t.Fatal("the server is not ready")
	}
	return r
}

// ask asks over one protocol. change may change the question.
func (r *running) ask(network, kind, name string, change ...func(*dns.Msg)) *dns.Msg {
	r.t.Helper()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[kind])
	for _, c := range change {
		c(m)
	}
	answer, _, err := (&dns.Client{Net: network, Timeout: wait.Patience}).Exchange(m, r.where(network, dnsAt))
	if err != nil {
		r.t.Fatalf("%s %s over %s: %v", kind, name, network, err)
	}
	return answer
}

// expect asks over UDP and TCP for what must be answered with these records, in
// any order: "TYPE value", or nothing but the response code. It is true as soon as
// the objects say so.
func (r *running) expect(kind, name, code string, want ...string) {
	r.t.Helper()
	for _, network := range []string{"udp", "tcp"} {
		m := r.ask(network, kind, name)
		got := []string{}
		for _, a := range m.Answer {
			got = append(got, text(a))
		}
		slices.Sort(got)
		slices.Sort(want)
		if dns.RcodeToString[m.Rcode] != code || !slices.Equal(got, want) {
			r.t.Errorf("%s %s over %s: got %s %q, want %s %q", kind, name, network, dns.RcodeToString[m.Rcode], got, code, want)
		}
	}
}

// text is the type and the value of a record.
func text(r dns.RR) string {
	h := r.Header()
	return dns.TypeToString[h.Rrtype] + " " + strings.TrimSpace(strings.TrimPrefix(r.String(), h.String()))
}

// defaultCorefileTTL is the ttl of the Corefile that servers have without a config map.
const defaultCorefileTTL = 30

const shop = `
kind: Namespace
metadata: {name: shop}
---
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIPs: [10.96.0.88, "fd00:96::88"], ports: [{name: http, port: 80, protocol: TCP}]}
---
kind: Service
metadata: {namespace: shop, name: pods}
spec: {clusterIPs: [None], ports: [{name: http, port: 80, protocol: TCP}]}
---
kind: EndpointSlice
metadata: {namespace: shop, name: pods-1, labels: {kubernetes.io/service-name: pods}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.1.2], hostname: a}
- {addresses: [10.244.1.3]}
`

func TestAnswersOverUDPAndTCP(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	trace.Proves(t, "C-195/long-names", "COMP-029", "DNS-007")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	r.expect("AAAA", "web.shop.svc.cluster.local", "NOERROR", "AAAA fd00:96::88")
	trace.Proves(t, "C-195/long-names", "DNS-008")
	r.expect("A", "pods.shop.svc.cluster.local", "NOERROR", "A 10.244.1.2", "A 10.244.1.3")
	r.expect("A", "a.pods.shop.svc.cluster.local", "NOERROR", "A 10.244.1.2")
	trace.Proves(t, "C-195/long-names", "DNS-010", "DNS-011", "DNS-012")
	r.expect("SRV", "_http._tcp.web.shop.svc.cluster.local", "NOERROR", "SRV 0 50 80 web.shop.svc.cluster.local.") // of two families
	trace.Proves(t, "DNS-010", "DNS-013")
	r.expect("SRV", "_http._tcp.pods.shop.svc.cluster.local", "NOERROR",
		"SRV 0 50 8080 a.pods.shop.svc.cluster.local.", "SRV 0 50 8080 10-244-1-3.pods.shop.svc.cluster.local.")
	trace.Proves(t, "C-195/long-names")
	r.expect("PTR", "88.0.96.10.in-addr.arpa", "NOERROR", "PTR web.shop.svc.cluster.local.")
	r.expect("PTR", "2.1.244.10.in-addr.arpa", "NOERROR", "PTR a.pods.shop.svc.cluster.local.")
	r.expect("A", "10-244-1-2.shop.pod.cluster.local", "NOERROR", "A 10.244.1.2")
	r.expect("TXT", "dns-version.cluster.local", "NOERROR", `TXT "1.1.0"`)
	r.expect("MX", "web.shop.svc.cluster.local", "NOERROR")
	r.expect("A", "88.0.96.10.in-addr.arpa", "NOERROR")
	r.expect("A", "nobody.shop.svc.cluster.local", "NXDOMAIN")
	r.expect("SOA", "cluster.local", "NOERROR", fmt.Sprintf("SOA ns.dns.cluster.local. hostmaster.cluster.local. %d 7200 1800 86400 30", r.s.view.serial()))
}

// The zones of addresses are zones as well: nobody else is asked about them.
func TestZonesOfAddressesAnswerForThemselves(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	world, asked := upstream(t, "192.0.2.1")
	r.settings("  upstreamNameservers: '[\"" + world + "\"]'\n")
	r.soon("www.example.org", "NOERROR", "A 192.0.2.1")
	before := asked()
	r.expect("SOA", "in-addr.arpa", "NOERROR", fmt.Sprintf("SOA ns.dns.in-addr.arpa. hostmaster.in-addr.arpa. %d 7200 1800 86400 30", r.s.view.serial()))
	r.expect("NS", "ip6.arpa", "NOERROR", "NS ns.dns.cluster.local.")
	r.expect("A", "in-addr.arpa", "NOERROR")
	if asked() != before {
		t.Errorf("asked another server %d times", asked()-before)
	}
}

func TestDenialSaysHowLongItHolds(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	for name, code := range map[string]int{"nobody.shop.svc.cluster.local": dns.RcodeNameError, "shop.svc.cluster.local": dns.RcodeSuccess} {
		m := r.ask("udp", "A", name)
		if m.Rcode != code || len(m.Answer) > 0 || len(m.Ns) != 1 || m.Ns[0].Header().Rrtype != dns.TypeSOA || m.Ns[0].Header().Name != "cluster.local." {
			t.Errorf("%s: got\n%s\nwant %s with the SOA of the zone", name, m, dns.RcodeToString[code])
		}
		if soa, ok := m.Ns[0].(*dns.SOA); !ok || soa.Minttl != defaultCorefileTTL || soa.Hdr.Ttl != defaultCorefileTTL {
			t.Errorf("%s: got %s, want both times %d s", name, m.Ns[0], defaultCorefileTTL)
		}
		if !m.Authoritative || !m.RecursionAvailable {
			t.Errorf("%s: got flags %s, want aa and ra", name, m.MsgHdr.String())
		}
	}
}

func TestAnswerHasTheNameAsItWasAsked(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	for _, network := range []string{"udp", "tcp"} {
		m := r.ask(network, "A", "WeB.Shop.sVc.Cluster.LOCAL.")
		if len(m.Answer) != 1 || m.Answer[0].Header().Name != "WeB.Shop.sVc.Cluster.LOCAL." || m.Question[0].Name != "WeB.Shop.sVc.Cluster.LOCAL." {
			t.Errorf("over %s: got\n%s", network, m)
		}
		if len(m.Answer) == 1 && m.Answer[0].Header().Ttl != defaultCorefileTTL {
			t.Errorf("over %s: got a TTL of %d s, want %d", network, m.Answer[0].Header().Ttl, defaultCorefileTTL)
		}
	}
}

// Who asks in letters large and small to know a forged answer finds them again, in the zone of a denial as well.
func TestZoneIsAsItWasAsked(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	if m := r.ask("udp", "A", "nobody.shop.svc.ClUsTeR.lOcAl."); len(m.Ns) != 1 || m.Ns[0].Header().Name != "ClUsTeR.lOcAl." {
		t.Errorf("a name that is not: got\n%s", m)
	}
	if m := r.ask("udp", "SOA", "Cluster.local."); len(m.Answer) != 1 || m.Answer[0].Header().Name != "Cluster.local." {
		t.Errorf("the zone: got\n%s", m)
	}
}

func TestAddressesComeInAnyOrder(t *testing.T) {
	trace.Proves(t, "DNS-009")
	t.Parallel()
	r := run(t, shop)
	first := map[string]bool{}
	for range 100 {
		first[text(r.ask("udp", "A", "pods.shop.svc.cluster.local").Answer[0])] = true
	}
	if want := []string{"A 10.244.1.2", "A 10.244.1.3"}; !slices.Equal(slices.Sorted(maps.Keys(first)), want) {
		t.Errorf("the first of the addresses in 100 answers: got %v, want sometimes each of %q", first, want)
	}
}

func TestAnswersChangeWithTheObjects(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	const name = "alias.shop.svc.cluster.local"
	alias := func(spec string) {
		r.apply(t, "kind: Service\nmetadata: {namespace: shop, name: alias}\nspec: {"+spec+"}\n")
	}
	r.expect("A", name, "NXDOMAIN")
	alias("type: ExternalName, externalName: foo.example.com")
	trace.Proves(t, "C-192", "SVC-078", "SVC-161", "SVC-162")
	r.expect("CNAME", name, "NOERROR", "CNAME foo.example.com.")
	alias("type: ExternalName, externalName: bar.example.com")
	trace.Proves(t, "C-192")
	r.expect("CNAME", name, "NOERROR", "CNAME bar.example.com.")
	alias("type: ExternalName, externalName: pods.shop.svc.cluster.local")
	r.expect("A", name, "NOERROR", "CNAME pods.shop.svc.cluster.local.", "A 10.244.1.2", "A 10.244.1.3")
	alias("type: ClusterIP, clusterIPs: [10.96.0.99], ports: [{name: http, port: 80, protocol: TCP}]")
	trace.Proves(t, "C-192", "SVC-078")
	r.expect("A", name, "NOERROR", "A 10.96.0.99")
	r.delete(t, "kind: Service\nmetadata: {namespace: shop, name: alias}\n")
	r.expect("A", name, "NXDOMAIN")
	const slice = `
kind: EndpointSlice
metadata: {namespace: shop, name: pods-1, labels: {kubernetes.io/service-name: pods}}
addressType: IPv4
endpoints: [{addresses: [10.244.1.7], conditions: {ready: %s}}]
`
	r.apply(t, fmt.Sprintf(slice, "false"))
	trace.Proves(t, "DNS-023")
	r.expect("A", "pods.shop.svc.cluster.local", "NXDOMAIN")
	r.apply(t, fmt.Sprintf(slice, "true")) // as the controller says it of unready pods where the service publishes them
	trace.Proves(t, "DNS-023")
	r.expect("A", "pods.shop.svc.cluster.local", "NOERROR", "A 10.244.1.7")
}

func TestNamesThatLeadInACircleEnd(t *testing.T) {
	t.Parallel()
	r := run(t, `
kind: Service
metadata: {namespace: x, name: a}
spec: {type: ExternalName, externalName: b.x.svc.cluster.local}
---
kind: Service
metadata: {namespace: x, name: b}
spec: {type: ExternalName, externalName: a.x.svc.cluster.local}
---
kind: Service
metadata: {namespace: x, name: c}
spec: {type: ExternalName, externalName: d.x.svc.cluster.local}
---
kind: Service
metadata: {namespace: x, name: d}
spec: {type: ExternalName, externalName: e.x.svc.cluster.local}
---
kind: Service
metadata: {namespace: x, name: e}
spec: {clusterIPs: [10.96.0.5]}
`)
	r.expect("A", "a.x.svc.cluster.local", "NOERROR", "CNAME b.x.svc.cluster.local.")
	r.expect("A", "c.x.svc.cluster.local", "NOERROR", "CNAME d.x.svc.cluster.local.", "CNAME e.x.svc.cluster.local.", "A 10.96.0.5")
}

func TestLargeAnswersFitTheClient(t *testing.T) {
	t.Parallel()
	r := run(t, "kind: Service\nmetadata: {namespace: shop, name: many}\nspec: {clusterIPs: [None]}\n")
	var slice strings.Builder
	slice.WriteString("kind: EndpointSlice\nmetadata: {namespace: shop, name: many-1, labels: {kubernetes.io/service-name: many}}\naddressType: IPv4\nendpoints:\n")
	const n = 200
	for i := range n {
		fmt.Fprintf(&slice, "- {addresses: [10.244.1.%d]}\n", i)
	}
	r.apply(t, slice.String())
	const name = "many.shop.svc.cluster.local"
	withSize := func(size uint16) func(*dns.Msg) { return func(m *dns.Msg) { m.SetEdns0(size, false) } }
	size := func(m *dns.Msg) int {
		m.Compress = true // as it was sent
		return m.Len()
	}
	if m := r.ask("udp", "A", name); !m.Truncated || size(m) > 512 {
		t.Errorf("over UDP without EDNS: got %d bytes, truncated %v, want it cut at 512", size(m), m.Truncated)
	}
	if m := r.ask("udp", "A", name, withSize(1232)); !m.Truncated || size(m) > 1232 || size(m) < 600 || m.IsEdns0() == nil {
		t.Errorf("over UDP with EDNS 1232: got %d bytes, truncated %v, want it cut at 1232", size(m), m.Truncated)
	}
	m := r.ask("udp", "A", name, withSize(8192))
	if m.Truncated || len(m.Answer) != n {
		t.Errorf("over UDP with EDNS 8192: got %d records, truncated %v, want %d", len(m.Answer), m.Truncated, n)
	}
	if m := r.ask("tcp", "A", name); m.Truncated || len(m.Answer) != n {
		t.Errorf("over TCP: got %d records, truncated %v, want %d", len(m.Answer), m.Truncated, n)
	}
	if m := r.ask("udp", "A", name, func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) }); m.Rcode != dns.RcodeBadVers {
		t.Errorf("EDNS version 1: got %s, want BADVERS", dns.RcodeToString[m.Rcode])
	}
}

func TestBadMessagesDoNoHarm(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	question, err := new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	two := new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA)
	two.Question = append(two.Question, two.Question[0])
	double, err := two.Pack()
	if err != nil {
		t.Fatal(err)
	}
	loop := append(slices.Clone(question[:12]), 0xc0, 12, 0, 1, 0, 1) // a name that points at itself
	response := slices.Clone(question)
	response[2] |= 0x80
	for _, network := range []string{"udp", "tcp"} {
		for _, bad := range [][]byte{{}, {0}, question[:5], question[:12], question[:20], response, loop, double, bytes.Repeat([]byte{0xff}, 600)} {
			c, err := net.Dial(network, r.where(network, dnsAt))
			if err != nil {
				t.Fatal(err)
			}
			if network == "tcp" {
				bad = append([]byte{byte(len(bad) >> 8), byte(len(bad))}, bad...)
			}
			_, _ = c.Write(bad)
			_ = c.Close()
		}
	}
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	if m := r.ask("udp", "A", "web.shop.svc.cluster.local", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }); m.Rcode != dns.RcodeRefused {
		t.Errorf("class CHAOS: got %s, want REFUSED", dns.RcodeToString[m.Rcode])
	}
	if m := r.ask("udp", "A", "web.shop.svc.cluster.local", func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate }); m.Rcode != dns.RcodeNotImplemented {
		t.Errorf("opcode UPDATE: got %s, want NOTIMP", dns.RcodeToString[m.Rcode])
	}
}

// upstream is a DNS server that answers every question for an address with its own.
func upstream(t testing.TB, address string) (at string, asked func() int) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu sync.Mutex
		n  int
		wg sync.WaitGroup
	)
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			mu.Lock()
			n++
			mu.Unlock()
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: net.ParseIP(address)}}
		}
		_ = w.WriteMsg(m)
	})}
	wg.Go(func() { _ = srv.ActivateAndServe() })
	t.Cleanup(func() {
		_ = pc.Close()
		wg.Wait()
	})
	return pc.LocalAddr().String(), func() int {
		mu.Lock()
		defer mu.Unlock()
		return n
	}
}

// settings sets the config map.
func (r *running) settings(data string) {
	r.apply(r.t, "kind: ConfigMap\nmetadata: {namespace: kube-system, name: kube-dns}\ndata:\n"+data)
}

// soon waits until a question over UDP is answered with the record.
func (r *running) soon(name, code, want string) {
	r.t.Helper()
	wait.Until(r.t, func() error {
		m := r.ask("udp", "A", name)
		got := dns.RcodeToString[m.Rcode]
		if len(m.Answer) > 0 {
			got += " " + text(m.Answer[len(m.Answer)-1])
		}
		if got != strings.TrimSpace(code+" "+want) {
			return fmt.Errorf("%s: got %s, want %s %s", name, got, code, want)
		}
		return nil
	})
}

func TestOtherNamesAreForwardedAsTheConfigMapSays(t *testing.T) {
	trace.Proves(t, "DNS-027")
	t.Parallel()
	r := run(t, shop)
	r.expect("A", "www.kubernetes.io", "REFUSED") // there is no server to ask
	world, asked := upstream(t, "192.0.2.1")
	acme, _ := upstream(t, "192.0.2.2")
	r.settings("  upstreamNameservers: '[\"" + world + "\"]'\n  stubDomains: '{\"acme.local\": [\"" + acme + "\"]}'\n")
	r.soon("www.kubernetes.io", "NOERROR", "A 192.0.2.1")
	r.soon("www.acme.local", "NOERROR", "A 192.0.2.2")
	r.soon("ACME.local", "NOERROR", "A 192.0.2.2")
	r.soon("notacme.local", "NOERROR", "A 192.0.2.1")
	r.expect("A", "nobody.shop.svc.cluster.local", "NXDOMAIN") // names of the cluster are asked here only
	before := asked()
	for range 5 {
		r.soon("www.kubernetes.io", "NOERROR", "A 192.0.2.1")
	}
	if asked() != before {
		t.Errorf("asked the server %d times for what it had said", asked()-before)
	}
	// The target of another name is looked up there.
	r.apply(t, "kind: Service\nmetadata: {namespace: shop, name: out}\nspec: {type: ExternalName, externalName: db.acme.local}\n")
	r.expect("A", "out.shop.svc.cluster.local", "NOERROR", "CNAME db.acme.local.", "A 192.0.2.2")
	// A change is followed, and nothing old remembered.
	r.settings("  upstreamNameservers: '[\"" + acme + "\"]'\n")
	r.soon("www.kubernetes.io", "NOERROR", "A 192.0.2.2")
	// What is not understood is not used, and said.
	r.settings("  upstreamNameservers: 'ns.example.com'\n")
	r.soon("www.kubernetes.io", "REFUSED", "")
	if !strings.Contains(r.log.String(), "config map kube-system/kube-dns is not understood") {
		t.Errorf("log: got %q", r.log.String())
	}
}

func TestDeadServerIsNotWaitedForLong(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := pc.LocalAddr().String()
	_ = pc.Close()
	r.settings("  upstreamNameservers: '[\"" + dead + "\"]'\n")
	r.soon("www.kubernetes.io", "SERVFAIL", "")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
}

func TestServersThatForwardToUsAreNotAsked(t *testing.T) {
	t.Parallel()
	a, b := run(t, shop), run(t, "")
	// Each names the other: a question would go round until somebody gives up.
	b.settings("  upstreamNameservers: '[\"" + a.where("udp", dnsAt) + "\"]'\n")
	a.settings("  upstreamNameservers: '[\"" + b.where("udp", dnsAt) + "\"]'\n")
	a.soon("www.kubernetes.io", "REFUSED", "")
	wait.Until(t, func() error {
		if got := a.log.String() + b.log.String(); !strings.Contains(got, "send them back here") {
			return fmt.Errorf("log: got %q, want it to tell of the loop", got)
		}
		return nil
	})
	a.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
}

func TestSettingsAreReadAsKubeDNSReadThem(t *testing.T) {
	for _, c := range []struct{ servers, stubs, want, err string }{
		{"", "", "[] map[]", ""},
		{`["8.8.8.8", "fd00::1", "1.1.1.1:5353"]`, "", "[8.8.8.8:53 [fd00::1]:53 1.1.1.1:5353] map[]", ""},
		{"", `{"Acme.Local": ["1.2.3.4"], "corp.": []}`, "[] map[acme.local.:[1.2.3.4:53] corp.:[]]", ""},
		{"8.8.8.8", "", "", "upstreamNameservers: invalid character"},
		{`["ns.example.com"]`, "", "", `"ns.example.com" is neither an address nor`},
		{"", `{".": ["1.2.3.4"]}`, "", "is not a domain"},
		{"", `{"a..b": ["1.2.3.4"]}`, "", "is not a domain"},
		{"", `{"acme.local": ["x"]}`, "", "stubDomains: acme.local"},
	} {
		u, err := parseSettings(map[string]string{"upstreamNameservers": c.servers, "stubDomains": c.stubs})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s %s: got %v, want %q", c.servers, c.stubs, err, c.err)
			}
			continue
		}
		if got := fmt.Sprint(u.servers, u.stubs); err != nil || got != c.want {
			t.Errorf("%s %s: got %s, %v, want %s", c.servers, c.stubs, got, err, c.want)
		}
	}
}

func TestServersOfTheMachineAreFoundButNotOurselves(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	conf := "# comment\nsearch example.com\nnameserver 10.244.1.1\nnameserver 192.0.2.53\nnameserver\nnameserver ns.example.com\nnameserver fd00::53\nnameserver 10.96.0.10\noptions ndots:2\n"
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := New(Options{
		Transport: newObjects(), ResolvConf: file, ServiceIP: netip.MustParseAddr("10.96.0.10"), Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:53")},
	})
	if err != nil {
		t.Fatal(err)
	}
	u, err := s.upstreams()
	if got := fmt.Sprint(u.servers); err != nil || got != "[192.0.2.53:53 [fd00::53]:53]" {
		t.Errorf("got %s, %v", got, err)
	}
}

// A machine that starts before its network does, or goes to another one.
func TestServersOfTheMachineAreReadAgainWhenTheyChange(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "resolv.conf")
	r := run(t, "", func(o *Options) { o.ResolvConf = file })
	look := func() string {
		r.s.mu.Lock()
		r.s.mu.looked = time.Time{} // long ago
		r.s.mu.Unlock()
		r.s.look()
		return fmt.Sprint(r.s.current.Load().targets)
	}
	if got := look(); got != "[]" {
		t.Errorf("without a file: got %s", got)
	}
	for _, servers := range [][]string{{"127.0.0.2"}, {"127.0.0.3", "127.0.0.4"}, {"127.0.0.5"}} {
		text := "nameserver " + strings.Join(servers, "\nnameserver ") + "\n"
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil { // as programs replace it
			t.Fatal(err)
		}
		want := "[" + strings.Join(servers, ":53 ") + ":53]"
		if got := look(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	before := r.s.current.Load()
	if look(); r.s.current.Load() != before {
		t.Error("read again without a change")
	}
}

// A question that finds the machine in another network is answered from there.
func TestQuestionThatFindsOtherServersGoesToThem(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	world, _ := upstream(t, "192.0.2.1")
	r.settings("  upstreamNameservers: '[\"127.0.0.1:1\"]'\n")
	wait.Until(t, func() error {
		if got := fmt.Sprint(r.s.current.Load().targets); got != "[127.0.0.1:1]" {
			return fmt.Errorf("servers: got %s", got)
		}
		return nil
	})
	r.settings("  upstreamNameservers: '[\"" + world + "\"]'\n")
	r.soon("www.kubernetes.io", "NOERROR", "A 192.0.2.1")
}
