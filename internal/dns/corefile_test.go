package dns

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/corefile"
	"github.com/kemudi/kemudi/test/wait"
)

// corefile sets the config map, whose other keys follow: name, value, and so on.
func (r *running) corefile(text string, others ...string) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: corefile.ConfigMap}, Data: map[string]string{corefile.Key: text}}
	for i := 0; i < len(others); i += 2 {
		m.Data[others[i]] = others[i+1]
	}
	r.Put(m)
}

// told waits for an event that contains a text, and returns it.
func (r *running) told(text string) (event string) {
	r.t.Helper()
	wait.Until(r.t, func() error {
		all := r.said.all()
		i := slices.IndexFunc(all, func(e string) bool { return strings.Contains(e, text) })
		if i < 0 {
			return fmt.Errorf("events: got %q, want %q", all, text)
		}
		event = all[i]
		return nil
	})
	return event
}

// with is a Corefile with more directives than a cluster has.
func with(directives string) string {
	return strings.Replace(corefile.Default(""), "    errors\n", "    errors\n"+directives+"\n", 1)
}

func TestCorefileIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	r.expect("A", "www.example.org", "REFUSED")
	r.corefile(with("template IN A example.org {\n answer \"{{ .Name }} 60 IN A 192.0.2.7\"\n}\n rewrite name old.shop.svc.cluster.local web.shop.svc.cluster.local"))
	r.soon("www.example.org", "NOERROR", "A 192.0.2.7")
	r.expect("A", "old.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	r.corefile(with("hosts {\n 192.0.2.8 www.example.org\n fallthrough\n}"))
	r.soon("www.example.org", "NOERROR", "A 192.0.2.8")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	// Without a config map there is what there was before.
	r.Remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: corefile.ConfigMap}})
	r.soon("www.example.org", "REFUSED", "")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
}

func TestBadCorefileIsReportedAndTheOneBeforeStays(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "dns")
	kept := func(o *Options) { o.Dir = dir }
	good := with("template IN A example.org {\n answer \"{{ .Name }} 60 IN A 192.0.2.7\"\n}")
	r := run(t, shop, kept)
	r.corefile(good)
	r.soon("www.example.org", "NOERROR", "A 192.0.2.7")
	r.corefile(strings.Replace(good, "loop", "lop", 1))
	if got, want := r.told("Unknown directive"), "kube-system/coredns Warning BadCorefile: /etc/coredns/Corefile:19 - Error during parsing: Unknown directive 'lop'; the Corefile before stays in force"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.expect("A", "www.example.org", "NOERROR", "A 192.0.2.7")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	if _, failed := r.count(t, "coredns_reload_failed_total", ""); failed != 1 {
		t.Errorf("metrics: got %v failures, want one", failed)
	}
	r.stop()
	// A start with the bad one goes by the good one as well.
	bad, _ := r.s.view.corefiles.Get("kube-system", corefile.ConfigMap)
	again := run(t, shop, kept, func(o *Options) { o.Transport.(*objects).Put(bad.DeepCopy()) })
	again.expect("A", "www.example.org", "NOERROR", "A 192.0.2.7")
	again.told("BadCorefile: /etc/coredns/Corefile:19")
	again.corefile(corefile.Default(""))
	again.soon("www.example.org", "REFUSED", "")
	again.told("Normal CorefileLoaded")
	wait.Until(t, func() error {
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			return fmt.Errorf("kept: got %v, %w, want nothing of a Corefile as there is without a config map", left, err)
		}
		return nil
	})
}

func TestCorefilesThatCannotBe(t *testing.T) {
	t.Parallel()
	s, err := New(Options{Transport: newObjects(), Addresses: []netip.AddrPort{netip.MustParseAddrPort("10.244.1.1:53")}})
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hidden"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                                                 "the Corefile has no server block",
		".:53 {\n errors\n":                                "/etc/coredns/Corefile:2 - Syntax error: Unexpected token",
		".:53 {\n nonsense\n}":                             "/etc/coredns/Corefile:2 - Error during parsing: Unknown directive 'nonsense'",
		".:53 {\n debug\n}":                                "Unknown directive 'debug'",
		".:53 {\n\n cache x y {\n z\n }\n}":                "/etc/coredns/Corefile:4 - ",
		".:53 {\n forward\n}":                              "/etc/coredns/Corefile:2 - ",
		".:53 {\n kubernetes in-addr.arpa\n}":              "/etc/coredns/Corefile:2 - plugin/kubernetes: non-reverse zone name must be used",
		".:53 {\n kubernetes a.b {\n  pods\n }\n}":         "/etc/coredns/Corefile:3 - Error during parsing: Wrong argument count",
		".:53 {\n kubernetes a.b {\n  pods some\n }\n}":    "wrong value for pods: some",
		".:53 {\n kubernetes a.b {\n  ttl 3601\n }\n}":     "ttl must be in range [0, 3600]: 3601",
		".:53 {\n kubernetes a.b {\n  kubeconfig x\n }\n}": "names of its own cluster only",
		".:53 {\n kubernetes a.b {\n  what\n }\n}":         "unknown property 'what'",
		".:53 {\n kubernetes a.b {\n  namespaces x\n  namespace_labels a=b\n }\n}": "cannot both be set",
		".:53 {\n kubernetes a.b\n kubernetes c.d\n}":                              "plugin/kubernetes: this plugin can only be used once per Server Block",
		"a.b {\n whoami\n}\na.b {\n whoami\n}":                                     "it is already defined",
		"tls://.:853 {\n whoami\n}":                                                "only DNS by UDP and TCP is served",
		".:53 {\n bind 192.0.2.1\n}":                                               "192.0.2.1 is not an address of these servers",
		".:53 {\n health 192.0.2.1:8080\n}":                                        "192.0.2.1 is not an address of these servers",
		".:53 {\n reload soon\n}":                                                  "plugin/reload: time: invalid duration",
		".:53 {\n hosts " + secret + "\n}":                                         "it names a file that is no key of the config map",
		".:53 {\n file ../" + secret + " a.b\n}":                                   "it names a file that is no key of the config map",
		"import " + secret:                                                         "only keys of the config map can be imported",
		".:53 {\n import ../../etc/*\n}":                                           "only keys of the config map can be imported",
		".:53 {\n import none\n}":                                                  "File to import not found: none",
		".:53 {\n template IN A {$HOME}\n}":                                        "there are no environment variables",
	} {
		c, err := s.load(text, filepath.Join(t.TempDir(), "dir"), upstreams{})
		if err == nil {
			t.Errorf("%q: got no error, want %q", text, want)
			_ = c.stop()
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%q: got %q, want %q", text, err, want)
		}
	}
}

func TestKeysOfTheConfigMapAreFiles(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	r.corefile(with("import custom.override\n hosts /etc/coredns/names example.org {\n fallthrough\n}\n file zone.db example.com"),
		"custom.override", "template IN A example.net {\n answer \"{{ .Name }} 60 IN A 192.0.2.9\"\n}\n",
		"names", "192.0.2.8 www.example.org\n",
		"zone.db", "@ 60 IN SOA ns.example.com. me.example.com. 1 60 60 60 60\n@ 60 IN NS ns.example.com.\nwww 60 IN A 192.0.2.6\n")
	r.soon("www.example.org", "NOERROR", "A 192.0.2.8")
	r.expect("A", "www.example.net", "NOERROR", "A 192.0.2.9")
	r.expect("A", "www.example.com", "NOERROR", "A 192.0.2.6")
	r.expect("A", "none.example.com", "NXDOMAIN")
	// A key that is imported is held to what a Corefile is.
	r.corefile(with("import custom.override"), "custom.override", "import /etc/passwd\n")
	if got := r.told("BadCorefile"); strings.Contains(got, "root") {
		t.Errorf("the event tells what is in a file of the machine: %s", got)
	}
	r.expect("A", "www.example.org", "NOERROR", "A 192.0.2.8")
}

func TestOptionsOfTheClustersNames(t *testing.T) {
	t.Parallel()
	r := run(t, shop+`---
kind: Namespace
metadata: {name: back, labels: {open: "yes"}}
---
kind: Service
metadata: {namespace: back, name: store, labels: {tier: db}}
spec: {clusterIPs: [10.96.0.90], ports: [{name: sql, port: 5432, protocol: TCP}]}
---
kind: Pod
metadata: {namespace: shop, name: p}
spec: {nodeName: n1}
status: {phase: Running, podIP: 10.244.1.2, podIPs: [{ip: 10.244.1.2}]}
---
kind: EndpointSlice
metadata: {namespace: shop, name: pods-1, labels: {kubernetes.io/service-name: pods}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.244.1.2], targetRef: {kind: Pod, name: p-1, namespace: shop}}
`)
	options := func(zones, text string) {
		t.Helper()
		r.corefile(".:53 {\n kubernetes " + zones + " {\n" + text + "\n }\n forward . /etc/resolv.conf\n template ANY ANY marked.example {\n  rcode NXDOMAIN\n }\n}\n")
		wait.Until(t, func() error {
			set, _ := r.s.view.corefiles.Get("kube-system", corefile.ConfigMap)
			r.s.mu.Lock()
			defer r.s.mu.Unlock()
			if !strings.HasPrefix(r.s.mu.running, sourceOf(set).sum()) {
				return fmt.Errorf("%s: not in force; events %q", text, r.said.all())
			}
			return nil
		})
	}
	options("cluster.local", "ttl 9")
	r.expect("A", "10-244-1-2.shop.pod.cluster.local", "NXDOMAIN") // pods are disabled unless said
	r.expect("PTR", "88.0.96.10.in-addr.arpa", "REFUSED")          // not one of the zones
	if m := r.ask("udp", "A", "web.shop.svc.cluster.local"); len(m.Answer) != 1 || m.Answer[0].Header().Ttl != 9 {
		t.Errorf("ttl 9: got %v", m.Answer)
	}
	options("cluster.local example.test 10.in-addr.arpa", "pods verified\nendpoint_pod_names")
	r.expect("A", "10-244-1-2.shop.pod.cluster.local", "NOERROR", "A 10.244.1.2")
	r.expect("A", "10-244-1-9.shop.pod.cluster.local", "NXDOMAIN")
	r.expect("A", "10-244-1-2.back.pod.cluster.local", "NXDOMAIN")
	r.expect("A", "web.shop.svc.example.test", "NOERROR", "A 10.96.0.88")
	r.expect("A", "p-1.pods.shop.svc.cluster.local", "NOERROR", "A 10.244.1.2")
	r.expect("SRV", "_http._tcp.pods.shop.svc.cluster.local", "NOERROR", "SRV 0 100 8080 p-1.pods.shop.svc.cluster.local.")
	r.expect("PTR", "88.0.96.10.in-addr.arpa", "NOERROR", "PTR web.shop.svc.cluster.local.")
	r.expect("PTR", "77.0.96.10.in-addr.arpa", "NXDOMAIN") // no fallthrough
	options("cluster.local in-addr.arpa", "namespaces back\nfallthrough in-addr.arpa")
	r.expect("A", "store.back.svc.cluster.local", "NOERROR", "A 10.96.0.90")
	r.expect("A", "web.shop.svc.cluster.local", "NXDOMAIN")
	r.expect("PTR", "88.0.96.10.in-addr.arpa", "REFUSED") // nobody to ask further on
	options("cluster.local", "namespace_labels open=yes")
	r.expect("A", "store.back.svc.cluster.local", "NOERROR", "A 10.96.0.90")
	r.expect("A", "web.shop.svc.cluster.local", "NXDOMAIN")
	options("cluster.local", "labels tier in (db)")
	r.expect("A", "store.back.svc.cluster.local", "NOERROR", "A 10.96.0.90")
	r.expect("A", "web.shop.svc.cluster.local", "NXDOMAIN")
	options("cluster.local", "noendpoints")
	r.expect("A", "pods.shop.svc.cluster.local", "NXDOMAIN")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	options("cluster.local", "ignore empty_service")
	r.expect("A", "web.shop.svc.cluster.local", "NXDOMAIN")
	r.expect("A", "pods.shop.svc.cluster.local", "NOERROR", "A 10.244.1.2")
	r.expect("NS", "cluster.local", "NOERROR", "NS ns.dns.cluster.local.")
	r.expect("A", "ns.dns.cluster.local", "NOERROR", "A 10.96.0.10")
}

func TestSearchListIsAnsweredInOneRound(t *testing.T) {
	t.Parallel()
	r := run(t, shop+`---
kind: Pod
metadata: {namespace: shop, name: client}
spec: {nodeName: n1}
status: {phase: Running, podIP: 127.0.0.1, podIPs: [{ip: 127.0.0.1}]}
`)
	r.corefile(strings.Replace(with("autopath @kubernetes\n template IN A example.org {\n answer \"{{ .Name }} 60 IN A 192.0.2.7\"\n}"), "pods insecure", "pods verified", 1))
	r.soon("www.example.org", "NOERROR", "A 192.0.2.7")
	// The first name of the search list of a pod in shop is all it has to ask for.
	r.expect("A", "www.example.org.shop.svc.cluster.local", "NOERROR", "CNAME www.example.org.", "A 192.0.2.7")
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	r.expect("A", "web.shop.svc.cluster.local.shop.svc.cluster.local", "NOERROR", "CNAME web.shop.svc.cluster.local.", "A 10.96.0.88")
}

func TestPagesAreServedAsTheCorefileSays(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	page := func(port, path string) (int, string) {
		t.Helper()
		at := r.where("tcp", "127.0.0.1:"+port)
		if at == "" {
			return 0, ""
		}
		answer, err := http.Get("http://" + at + path)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(body)
	}
	r.expect("A", "web.shop.svc.cluster.local", "NOERROR", "A 10.96.0.88")
	code, text := page("9153", "/metrics")
	for _, want := range []string{`coredns_dns_requests_total{family="1",proto="udp",server="dns://:53",type="A",view="",zone="."}`, "coredns_reload_failed_total 0", "go_goroutines ",
		`coredns_build_info{goversion="go`, `coredns_reload_version_info{hash="sha512",value="`, `coredns_plugin_enabled{name="kubernetes",server="dns://:53",view="",zone="."} 1`} {
		if code != 200 || !strings.Contains(text, want) {
			t.Errorf("metrics: got %d, without %s", code, want)
		}
	}
	if code, _ := page("8080", "/health"); code != 0 {
		t.Errorf("health without the directive: got %d", code)
	}
	r.corefile(with("health {\n lameduck 5s\n}\n ready"))
	wait.Until(t, func() error {
		if code, text := page("8080", "/health"); code != 200 || text != "OK" {
			return fmt.Errorf("health: got %d %s", code, text)
		}
		if code, text := page("8181", "/ready"); code != 200 || text != "OK" {
			return fmt.Errorf("ready: got %d %s", code, text)
		}
		return nil
	})
	if code, _ := page("8181", "/metrics"); code != 404 {
		t.Errorf("metrics on the port of ready: got %d, want 404", code)
	}
	// What is not wanted any more is closed.
	r.corefile(corefile.Default(""))
	wait.Until(t, func() error {
		if code, text := page("8080", "/health"); code != 0 {
			return fmt.Errorf("health: got %d %s, want it closed", code, text)
		}
		return nil
	})
}

func TestServersOfAProcessHaveNothingInCommon(t *testing.T) {
	t.Parallel()
	a, b := run(t, shop), run(t, shop)
	a.corefile(with("template IN A example.org {\n answer \"{{ .Name }} 60 IN A 192.0.2.1\"\n}"))
	b.corefile(with("template IN A example.org {\n answer \"{{ .Name }} 60 IN A 192.0.2.2\"\n}"))
	a.soon("www.example.org", "NOERROR", "A 192.0.2.1")
	b.soon("www.example.org", "NOERROR", "A 192.0.2.2")
	b.stop()
	a.expect("A", "www.example.org", "NOERROR", "A 192.0.2.1")
}

func TestQuestionsAreAnsweredWhileTheCorefileChanges(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	for i := range 50 {
		r.corefile(with(fmt.Sprintf("# %d\n bufsize %d", i, 1000+i)))
		for range 5 {
			m := r.ask("udp", "A", "web.shop.svc.cluster.local")
			if m.Rcode != dns.RcodeSuccess || len(m.Answer) != 1 {
				t.Fatalf("change %d: got\n%s", i, m)
			}
		}
	}
}

// count is what a metric of the server has for a label: of a histogram how many values and their sum, of a counter the sum.
func (r *running) count(t *testing.T, name, label string) (n uint64, sum float64) {
	t.Helper()
	families, err := r.s.measured.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (label == "" || m.Label[0].GetValue() == label) {
				n, sum = n+m.GetHistogram().GetSampleCount(), sum+m.GetHistogram().GetSampleSum()+m.GetCounter().GetValue()
			}
		}
	}
	return n, sum
}

func TestMeasuresHowLongChangesOfEndpointsTake(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	for service, kind := range map[string]string{"pods": "headless_with_selector", "web": "cluster_ip"} {
		wait.Until(t, func() error { // what is there when the server begins is no change
			since := time.Now().Add(-3 * time.Second).UTC().Format(time.RFC3339Nano)
			r.apply(t, fmt.Sprintf(`
kind: EndpointSlice
metadata:
  namespace: shop
  name: %s-1
  labels: {kubernetes.io/service-name: %[1]s}
  annotations: {endpoints.kubernetes.io/last-change-trigger-time: %q}
addressType: IPv4
endpoints: [{addresses: [10.244.1.7]}]
`, service, since))
			if n, sum := r.count(t, "coredns_kubernetes_dns_programming_duration_seconds", kind); n < 1 || sum < 3*float64(n) {
				return fmt.Errorf("%s: got %d changes that took %v s, want at least one of at least 3", kind, n, sum)
			}
			return nil
		})
	}
}

// Of a machine that names many servers some are asked; the plugin forward would take none.
func TestTakesAsManyServersAsThereMayBe(t *testing.T) {
	t.Parallel()
	r := run(t, shop)
	world, _ := upstream(t, "192.0.2.1")
	r.settings("  upstreamNameservers: '[" + strings.TrimSuffix(strings.Repeat("\""+world+"\",", 20), ",") + "]'\n")
	r.soon("www.example.org", "NOERROR", "A 192.0.2.1")
}

// What a server outside could not say by UDP the client must ask for by TCP, also where a name of the cluster leads there.
func TestTellsOfAnswersThatWereCutOutside(t *testing.T) {
	t.Parallel()
	r := run(t, "kind: Service\nmetadata: {namespace: shop, name: out}\nspec: {type: ExternalName, externalName: many.example.org}\n")
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &dns.Server{PacketConn: pc, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		m.Truncated = q.Question[0].Qtype == dns.TypeA
		_ = w.WriteMsg(m)
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.ActivateAndServe() })
	t.Cleanup(func() {
		_ = pc.Close()
		wg.Wait()
	})
	r.settings("  upstreamNameservers: '[\"" + pc.LocalAddr().String() + "\"]'\n")
	wait.Until(t, func() error {
		m := r.ask("udp", "A", "out.shop.svc.cluster.local")
		if len(m.Answer) != 1 || !m.Truncated {
			return fmt.Errorf("got\n%s\nwant the alias, and that there is more", m)
		}
		return nil
	})
	if m := r.ask("udp", "CNAME", "out.shop.svc.cluster.local"); m.Truncated {
		t.Errorf("got\n%s\nwant it whole: nobody outside is asked", m)
	}
}
