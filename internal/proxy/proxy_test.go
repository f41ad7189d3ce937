package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// newCluster returns the objects of a cluster that has node n1.
func newCluster(objects ...resource.Object) *clienttest.Filled {
	return clienttest.NewFilled(append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})...)
}

// run runs a proxy on node n1 of the site until the test ends, changed before it starts.
func (s *site) run(o Options, change ...func(*Proxy)) *Proxy {
	s.t.Helper()
	o.NodeName = "n1"
	if o.Listen == nil {
		o.Listen = s.listen
	}
	o.ClusterCIDRs = mustPrefixes("10.244.0.0/16", "fd00:244::/48")
	var p *Proxy
	s.n1.Must(func() (err error) {
		p, err = New(o)
		return err
	})
	s.t.Cleanup(p.Close)
	p.loopback = s.relays()
	for _, c := range change {
		c(p)
	}
	g := task.NewGroup(s.t.Context())
	g.Go("proxy", p.Run)
	s.t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			s.t.Errorf("proxy: %v", err)
		}
	})
	return p
}

// soon waits until the condition holds.
func soon(t *testing.T, what string, condition func() bool) {
	t.Helper()
	wait.Until(t, func() error {
		if !condition() {
			return errors.New(what)
		}
		return nil
	})
}

func (s *site) answers(addr, want string) bool {
	var name string
	_ = s.client.Do(func() error {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = fmt.Fscan(c, &name)
		return err
	})
	return name == want
}

func TestRulesFollowTheCluster(t *testing.T) {
	s := newSite(t)
	s.serve()
	web := service("web", "10.96.0.10")
	c := newCluster(web, backends("web", "10.244.1.2@n1"))
	p := s.run(Options{Transport: c})
	soon(t, "the rules are in force", p.Synced)
	trace.Proves(t, "SVC-046", "SVC-047")
	s.reach(s.client, "10.96.0.10:80", "a", "")
	c.Put(backends("web", "10.244.1.3@n1"))
	trace.Proves(t, "EPS-012", "SVC-035", "SVC-045")
	soon(t, "b answers", func() bool { return s.answers("10.96.0.10:80", "b") })
	c.Put(backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
	soon(t, "a answers", func() bool { return s.answers("10.96.0.10:80", "a") })
	c.Put(service("new", "10.96.0.11", nodePort), backends("new", "10.244.2.2@n2"))
	trace.Proves(t, "SVC-035", "SVC-045")
	soon(t, "c answers", func() bool { return s.answers("192.168.1.1:30080", "c") })
	c.Remove(web)
	trace.Proves(t, "SVC-035", "SVC-045")
	soon(t, "nobody answers", func() bool { return !s.answers("10.96.0.10:80", "a") && !s.answers("10.96.0.10:80", "b") })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hp"}}
	pod.Spec.NodeName = "n1"
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 8081}}}}
	pod.Status.PodIP = "10.244.1.2"
	elsewhere := pod.DeepCopy()
	elsewhere.Name, elsewhere.Spec.NodeName, elsewhere.Spec.Containers[0].Ports[0].HostPort = "hp2", "n2", 8082
	c.Put(elsewhere, pod)
	soon(t, "the host port answers", func() bool { return s.answers("192.168.1.1:8081", "a") })
	if s.answers("192.168.1.1:8082", "a") {
		t.Error("the host port of another node's pod answered")
	}
	c.Remove(pod)
	soon(t, "the host port is closed", func() bool { return !s.answers("192.168.1.1:8081", "a") })
}

// told gets the events of a proxy, as text.
type told chan string

func (c told) Event(obj resource.Object, kind, reason, message string) {
	c <- fmt.Sprintf("%s %s %s %s %q", obj.GetName(), obj.GetUID(), kind, reason, message)
}

func TestNodeIsToldThatItsProxyStarts(t *testing.T) {
	s := newSite(t)
	events := make(told, 10)
	s.run(Options{Transport: newCluster(), Events: events})
	if got, want := <-events, `n1 n1 Normal Starting ""`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNothingIsDoneBeforeAllIsKnown(t *testing.T) {
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1")) // by an earlier process
	c := newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	list := c.Relist(discovery.EndpointSlices.Def)
	p := s.run(Options{Transport: c})
	for range 20 {
		s.reach(s.client, "10.96.0.10:80", "a", "")
	}
	if p.Synced() || p.Check(t.Context()) == nil {
		t.Error("the proxy says that it is in step although it has not seen the slices")
	}
	list()
	soon(t, "the rules are in force", p.Synced)
	s.reach(s.client, "10.96.0.10:80", "a", "")
	if err := p.Check(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFlushedRulesComeBack(t *testing.T) {
	s := newSite(t)
	s.serve()
	reg := prometheus.NewRegistry()
	p := s.run(Options{Transport: newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1")), Metrics: reg})
	soon(t, "the rules are in force", p.Synced)
	var b nft.Batch
	b.DelTable(tableOf(nft.IPv4)) // as by "nft flush ruleset"
	if err := s.kernel.Conn().Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	soon(t, "a answers again", func() bool { return s.answers("10.96.0.10:80", "a") })
	if n := sample(t, p.metrics.overwritten); n != 1 {
		t.Errorf("kemudi_proxy_rules_overwritten_total: got %v, want 1", n)
	}
}

// TestRulesOfOthersInOurTablesGoAgain puts in what would take all connections away.
func TestRulesOfOthersInOurTablesGoAgain(t *testing.T) {
	s := newSite(t)
	s.serve()
	p := s.run(Options{Transport: newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))})
	soon(t, "the rules are in force", p.Synced)
	soon(t, "a answers", func() bool { return s.answers("10.96.0.10:80", "a") })
	for what, change := range map[string]func(b *nft.Batch){
		"a chain that drops": func(b *nft.Batch) {
			b.AddChain(tableOf(nft.IPv4), "theirs", &nft.Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
			b.AddRule(tableOf(nft.IPv4), "theirs", nft.Do(nft.Drop, ""))
		},
		"an endpoint": func(b *nft.Batch) {
			e := Key{Set: ClusterIPs, Addr: netip.MustParseAddr("10.244.1.2")}.elem(nft.IPv4, Value{})
			b.AddElems(tableOf(nft.IPv4), ClusterIPs.String(), []nft.Elem{{Key: []byte(e.Key)}})
		},
	} {
		var b nft.Batch
		change(&b)
		if err := s.kernel.Conn().Commit(t.Context(), &b); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		soon(t, what+" is gone", func() bool {
			chains, err := s.kernel.Conn().Chains(tableOf(nft.IPv4))
			keys, keysErr := s.kernel.Conn().Keys(tableOf(nft.IPv4), ClusterIPs.String())
			return err == nil && keysErr == nil && !slices.Contains(chains, "theirs") && len(keys) == 1
		})
		soon(t, "a answers again", func() bool { return s.answers("10.96.0.10:80", "a") })
	}
}

func TestRefusedTransactionIsTriedAgainAsAWhole(t *testing.T) {
	s := newSite(t)
	s.serve()
	c := newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	p := s.run(Options{Transport: c})
	soon(t, "the rules are in force", p.Synced)
	// Something of ours is taken from under the proxy, so that its next change
	// fails: there is no such element to be deleted.
	var b nft.Batch
	b.FlushSet(tableOf(nft.IPv4), ServiceIPs.String())
	if err := p.kernel.Conn().Commit(t.Context(), &b); err != nil { // by its own socket: not seen as foreign
		t.Fatal(err)
	}
	c.Put(backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
	soon(t, "b answers", func() bool { return s.answers("10.96.0.10:80", "b") })
	for family, want := range map[string]int{"IPv4": 1, "IPv6": 0} {
		if n := sample(t, p.metrics.failures.WithLabelValues(family)); n != want {
			t.Errorf("kubeproxy_sync_proxy_rules_nftables_sync_failures_total of %s: got %v, want %d", family, n, want)
		}
	}
}

func TestHealthIsServedOnceItsPortIsFree(t *testing.T) {
	s := newSite(t)
	var tries atomic.Int32
	s.run(Options{Transport: newCluster(), Healthz: netip.MustParseAddrPort("0.0.0.0:10256"), Status: netip.MustParseAddrPort("0.0.0.0:10249"), Listen: func(ctx context.Context, network, addr string) (l net.Listener, err error) {
		if tries.Add(1) == 1 {
			return nil, unix.EADDRINUSE
		}
		return l, errors.Join(s.n1.Do(func() error {
			l, err = (&net.ListenConfig{}).Listen(ctx, network, addr)
			return err
		}))
	}})
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, addr string) (net.Conn, error) { return s.client.Dial(network, addr) }}}
	for _, tc := range []struct{ at, want string }{
		{"10256/healthz", `"lastUpdated"`},
		{"10256/livez", `"lastUpdated"`},
		{"10249/proxyMode", "nftables"},
		{"10249/healthz", "ok"},
		{"10249/metrics", "kubeproxy_proxy_healthz_total"}, // which is there once somebody has asked
	} {
		soon(t, tc.at+" answers", func() bool {
			r, err := client.Get("http://192.168.1.1:" + tc.at)
			if err != nil {
				return false
			}
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			return err == nil && r.StatusCode == http.StatusOK && strings.Contains(string(body), tc.want)
		})
	}
}

func TestHealthCheckNodePortTellsOfLocalEndpoints(t *testing.T) {
	trace.Proves(t, "SVC-153")
	s := newSite(t)
	local := func(port int32) *corev1.Service {
		return service("web", "10.96.0.10", nodePort, func(svc *corev1.Service) {
			svc.Spec.Type = corev1.ServiceTypeLoadBalancer
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			svc.Spec.HealthCheckNodePort = port
		})
	}
	c := newCluster(local(32000), backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2"))
	s.run(Options{Transport: c, Listen: func(ctx context.Context, network, addr string) (l net.Listener, err error) {
		return l, errors.Join(s.n1.Do(func() error {
			l, err = (&net.ListenConfig{}).Listen(ctx, network, addr)
			return err
		}))
	}})
	type answer struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      int
		ServiceProxyHealthy bool
	}
	get := func(port int) (status int, weight string, a answer) {
		client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(_ context.Context, network, addr string) (net.Conn, error) { return s.client.Dial(network, addr) }}}
		r, err := client.Get(fmt.Sprintf("http://192.168.1.1:%d/", port))
		if err != nil {
			return 0, "", a
		}
		defer r.Body.Close()
		_ = json.NewDecoder(r.Body).Decode(&a)
		return r.StatusCode, r.Header.Get("X-Load-Balancing-Endpoint-Weight"), a
	}
	soon(t, "the port answers 200", func() bool { status, _, _ := get(32000); return status == http.StatusOK })
	if _, weight, a := get(32000); weight != "2" || a.LocalEndpoints != 2 || !a.ServiceProxyHealthy || a.Service.Name != "web" {
		t.Errorf("got weight %q and %+v, want two endpoints of web", weight, a)
	}
	c.Put(backends("web", "10.244.2.2@n2"))
	soon(t, "the port answers 503", func() bool { status, _, _ := get(32000); return status == http.StatusServiceUnavailable })
	c.Put(local(32001))
	soon(t, "the port has moved", func() bool {
		old, _, _ := get(32000)
		now, _, _ := get(32001)
		return old == 0 && now == http.StatusServiceUnavailable
	})
	c.Remove(local(32001))
	soon(t, "the port is closed", func() bool { status, _, _ := get(32001); return status == 0 })
}

// TestHealthCheckNodePortIsServedWhereNodePortsAre limits both to loopback addresses, and to the node's primary ones.
func TestHealthCheckNodePortIsServedWhereNodePortsAre(t *testing.T) {
	for what, tc := range map[string]struct {
		ranges  []netip.Prefix
		primary bool
		yes, no string
	}{
		"loopback": {ranges: mustPrefixes("127.0.0.0/8"), yes: "127.0.0.1", no: "192.168.1.1"},
		"primary":  {ranges: mustPrefixes("203.0.113.0/24"), primary: true, yes: "192.168.1.1", no: "127.0.0.1"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t)
			svc := service("web", "10.96.0.10", nodePort, func(svc *corev1.Service) {
				svc.Spec.Type = corev1.ServiceTypeLoadBalancer
				svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
				svc.Spec.HealthCheckNodePort = 32000
			})
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.1.1"}, {Type: corev1.NodeExternalIP, Address: "203.0.113.1"}},
			}}
			c := newCluster(svc, backends("web", "10.244.1.2@n1"))
			c.Put(node)
			s.run(Options{
				Transport: c, Config: Config{NodePortAddresses: tc.ranges, NodePortPrimary: tc.primary},
				Listen: func(ctx context.Context, network, addr string) (l net.Listener, err error) {
					return l, errors.Join(s.n1.Do(func() error {
						l, err = (&net.ListenConfig{}).Listen(ctx, network, addr)
						return err
					}))
				},
			})
			open := func(ip string) bool {
				c, err := s.n1.Dial("tcp", ip+":32000")
				if err == nil {
					_ = c.Close()
				}
				return err == nil
			}
			soon(t, "the port is open at "+tc.yes, func() bool { return open(tc.yes) })
			if open(tc.no) {
				t.Errorf("the port is open at %s as well", tc.no)
			}
		})
	}
}

func TestHealthEndpoints(t *testing.T) {
	s := newSite(t)
	c := newCluster()
	p := s.run(Options{Transport: c})
	get := func(path string) (int, string) {
		r := httptest.NewRecorder()
		p.Handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		body, _ := io.ReadAll(r.Body)
		return r.Code, string(body)
	}
	soon(t, "the rules are in force", p.Synced)
	if code, body := get("/healthz"); code != http.StatusOK || !strings.Contains(body, `"nodeEligible":true`) {
		t.Errorf("/healthz: got %d %s", code, body)
	}
	if code, body := get("/livez"); code != http.StatusOK || strings.Contains(body, "nodeEligible") {
		t.Errorf("/livez: got %d %s", code, body)
	}
	for _, path := range []string{"/healthz", "/livez"} {
		var told struct {
			LastUpdated string
			Healthy     bool
			Status      map[string]struct {
				LastUpdated string
				Healthy     bool
			}
		}
		_, body := get(path)
		if err := json.Unmarshal([]byte(body), &told); err != nil {
			t.Fatalf("%s: %v: %s", path, err, body)
		}
		for _, family := range []string{"IPv4", "IPv6"} {
			if of := told.Status[family]; !told.Healthy || !of.Healthy || of.LastUpdated != told.LastUpdated {
				t.Errorf("%s: got %s, want %s to be healthy, and so all", path, body, family)
			}
		}
	}
	if _, body := get("/proxyMode"); body != "nftables" {
		t.Errorf("/proxyMode: got %q", body)
	}
	c.Put(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}}})
	soon(t, "the node is not eligible", func() bool { code, _ := get("/healthz"); return code == http.StatusServiceUnavailable })
	if code, _ := get("/livez"); code != http.StatusOK {
		t.Errorf("/livez of a node about to go: got %d, want 200", code)
	}
}

func TestBurstBecomesFewTransactions(t *testing.T) {
	s := newSite(t)
	s.serve()
	c := newCluster(service("web", "10.96.0.10"))
	p := s.run(Options{Transport: c, Metrics: prometheus.NewRegistry(), MinInterval: 50 * time.Millisecond})
	soon(t, "the rules are in force", p.Synced)
	start := time.Now()
	for i := range 2000 {
		c.Put(backends("web", fmt.Sprintf("10.244.3.%d@n3", i%250)))
	}
	c.Put(backends("web", "10.244.1.2@n1"))
	soon(t, "a answers", func() bool { return s.answers("10.96.0.10:80", "a") })
	most := int(time.Since(start)/(50*time.Millisecond)) + 3
	if n := sample(t, p.metrics.sync); n > most {
		t.Errorf("2001 changes in %s made %d transactions, want at most %d", time.Since(start), n, most)
	}
}

// Who watches rules compares when a change was asked for with when they were last in order, and looks at what waits.
func TestMetricsTellOfRulesThatAreBehind(t *testing.T) {
	s := newSite(t)
	s.serve()
	c := newCluster(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	reg := prometheus.NewRegistry()
	p := s.run(Options{Transport: c, Metrics: reg, MinInterval: 50 * time.Millisecond})
	soon(t, "the rules are in force", p.Synced)
	value := func(name, family string) (v float64, found bool) {
		all, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range all {
			for _, m := range f.Metric {
				if f.GetName() == name && (family == "" || m.Label[0].GetName() == "ip_family" && m.Label[0].GetValue() == family) {
					return m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()), true
				}
			}
		}
		return 0, false
	}
	// A change that changes no rule is taken in as well, and leaves nothing behind.
	before, _ := value("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "IPv6")
	slice := backends("web", "10.244.1.2@n1")
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)}
	c.Put(slice)
	soon(t, "the change is taken in", func() bool {
		queued, _ := value("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "IPv6")
		synced, _ := value("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "IPv6")
		return queued > before && synced >= queued
	})
	soon(t, "it is counted, of its family", func() bool {
		n, _ := value("kubeproxy_network_programming_duration_seconds", "IPv4")
		return n == 1
	})
	if n, found := value("kubeproxy_network_programming_duration_seconds", "IPv6"); found {
		t.Errorf("changes of slices of IPv6: got %v, want none", n)
	}
	for _, name := range []string{"kubeproxy_sync_proxy_rules_endpoint_changes_pending", "kubeproxy_sync_proxy_rules_service_changes_pending"} {
		if n, found := value(name, ""); !found || n != 0 {
			t.Errorf("%s: got %v (%t), want 0", name, n, found)
		}
	}
}

func TestChangesWaitUntilTheyAreTakenIn(t *testing.T) {
	t.Parallel()
	f := newFeed()
	for _, kind := range kinds {
		f.put(kind, true, 5, func(*Model) {}) // what was there at the start is no change
	}
	f.put("service", false, 3, func(*Model) {})
	f.put("endpointslice", false, 1, func(*Model) {})
	if s, e := f.pending("service"), f.pending("endpointslice"); s != 3 || e != 1 {
		t.Errorf("got %d and %d changes that wait, want 3 and 1", s, e)
	}
	if in, ok := f.take(); !ok || in.counts["service"] != 3 || f.pending("service") != 0 {
		t.Errorf("got %v, %t, and %d that wait, want all 3 taken in", in.counts, ok, f.pending("service"))
	}
}

// sample is the value of a counter, or how much a histogram has seen.
func sample(t *testing.T, c prometheus.Collector) int {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("gather: %v", err)
	}
	m := families[0].Metric[0]
	if m.Histogram != nil {
		return int(m.Histogram.GetSampleCount())
	}
	return int(m.Counter.GetValue())
}
