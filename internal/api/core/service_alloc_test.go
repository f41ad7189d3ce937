package core_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/trace"
)

// ledger keeps allocations in memory: who holds which value.
type ledger struct {
	held     map[string]string
	settings map[string]string
	offered  []string // nil: there are no objects that offer addresses
}

// tx is the transaction of one object on a ledger.
type tx struct {
	*ledger
	owner string
}

var _ resource.Tx = tx{}

func newLedger(cidr string) *ledger {
	return &ledger{held: map[string]string{}, settings: map[string]string{core.FlagServiceCIDR: cidr}}
}

func (t tx) Allocate(class, name string) error {
	if owner := t.held[class+"/"+name]; owner != "" && owner != t.owner {
		return resource.ErrAllocated
	}
	t.held[class+"/"+name] = t.owner
	return nil
}

func (t tx) AllocateAny(class string, candidates func(yield func(name string) bool)) (string, error) {
	for name := range candidates {
		if t.held[class+"/"+name] == "" {
			t.held[class+"/"+name] = t.owner
			return name, nil
		}
	}
	return "", resource.ErrExhausted
}

func (tx) Outside(string, string) {}

func (t tx) Release(class, name string) {
	if t.held[class+"/"+name] == t.owner {
		delete(t.held, class+"/"+name)
	}
}

func (t tx) Offered(string) ([]string, bool) { return t.offered, t.offered != nil }

func (t tx) Setting(flag string) string { return t.settings[flag] }

// write runs what the server does with a service; old is nil on create.
func (l *ledger) write(t *testing.T, s, old *corev1.Service) (*corev1.Service, error) {
	t.Helper()
	s = s.DeepCopy()
	if old == nil {
		errs := created(core.Services.Def, s)
		if errs.Len() > 0 {
			return nil, errs.List().ToAggregate()
		}
	} else {
		errs := resource.NewErrors()
		core.Services.Default(s)
		core.Services.Prepare(s, old)
		core.Services.Validate(s, old, errs)
		if errs.Len() > 0 {
			return nil, errs.List().ToAggregate()
		}
	}
	before := maps.Clone(l.held)
	if err := core.Services.Commit(tx{l, s.Name}, s, asObject(old)); err != nil {
		l.held = before
		return nil, err
	}
	return s, nil
}

// asObject keeps a nil service a nil object.
func asObject(s *corev1.Service) resource.Object {
	if s == nil {
		return nil
	}
	return s
}

func (l *ledger) mustWrite(t *testing.T, s, old *corev1.Service) *corev1.Service {
	t.Helper()
	out, err := l.write(t, s, old)
	if err != nil {
		t.Fatalf("write %s: %v", s.Name, err)
	}
	return out
}

func (l *ledger) allocations() []string { return slices.Sorted(maps.Keys(l.held)) }

func service(name string, change func(s *corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	change(&s.Spec)
	return s
}

func plain(*corev1.ServiceSpec) {}

func TestServiceGetsClusterIPFromTheUpperPartOfTheRange(t *testing.T) {
	trace.Proves(t, "SVC-008", "SVC-169", "CONN-010")
	l := newLedger("10.96.0.0/24")
	seen := map[string]bool{}
	for i := range 20 {
		s := l.mustWrite(t, service(fmt.Sprintf("s%d", i), plain), nil)
		ip := netip.MustParseAddr(s.Spec.ClusterIP)
		if n := ip.As4()[3]; n < 17 || n > 254 || seen[s.Spec.ClusterIP] {
			t.Fatalf("cluster IP %s: taken, or in the part for those who ask", ip)
		}
		seen[s.Spec.ClusterIP] = true
		if !slices.Equal(s.Spec.ClusterIPs, []string{s.Spec.ClusterIP}) || s.Spec.IPFamilies[0] != corev1.IPv4Protocol ||
			*s.Spec.IPFamilyPolicy != corev1.IPFamilyPolicySingleStack {
			t.Fatalf("spec = %+v", s.Spec)
		}
		again := l.mustWrite(t, service(s.Name, plain), s)
		if again.Spec.ClusterIP != s.Spec.ClusterIP {
			t.Fatalf("an update changed %s to %s", s.Spec.ClusterIP, again.Spec.ClusterIP)
		}
	}
}

func TestServicesUseTheLowerPartWhenTheUpperIsFull(t *testing.T) {
	l := newLedger("10.96.0.0/27") // 30 addresses, 16 of them for those who ask
	for i := range 30 {
		l.mustWrite(t, service(fmt.Sprintf("s%d", i), plain), nil)
	}
	_, err := l.write(t, service("more", plain), nil)
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "failed to allocate a serviceIP: range is full") {
		t.Errorf("got %v, want that the range is full", err)
	}
}

func TestServicesGetAddressesOfAllRangesThatAreOffered(t *testing.T) {
	l := newLedger("10.96.0.0/29") // which nobody offers
	l.offered = []string{"10.97.0.0/30", "10.98.0.0/24", "10.99.0.0/30"}
	given := map[string]int{}
	var first *corev1.Service
	for i := range 258 {
		s := l.mustWrite(t, service(fmt.Sprintf("s%d", i), plain), nil)
		first = cmp.Or(first, s)
		p, _ := netip.MustParseAddr(s.Spec.ClusterIP).Prefix(16)
		given[p.String()]++
	}
	if want := map[string]int{"10.97.0.0/16": 2, "10.98.0.0/16": 254, "10.99.0.0/16": 2}; !maps.Equal(given, want) {
		t.Errorf("got %v, want %v", given, want)
	}
	if _, err := l.write(t, service("more", plain), nil); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "range is full") {
		t.Errorf("got %v, want that all is full", err)
	}
	_, err := l.write(t, service("asks", func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.1" }), nil)
	if want := "the provided IP (10.96.0.1) is not in the valid range. The range of valid IPs is 10.97.0.0/30, 10.98.0.0/24, 10.99.0.0/30"; !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	// A service keeps what it has, whichever ranges there are.
	for _, l.offered = range [][]string{{"10.98.0.0/24"}, {}} {
		if again := l.mustWrite(t, service("s0", plain), first); again.Spec.ClusterIP != first.Spec.ClusterIP {
			t.Errorf("got %s, want %s as before", again.Spec.ClusterIP, first.Spec.ClusterIP)
		}
	}
}

func TestAClusterGoesFromOneFamilyToTwoAndBack(t *testing.T) {
	l := newLedger("10.96.0.0/24")
	prefer := func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack) }
	require := func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyRequireDualStack) }
	l.offered = []string{"10.96.0.0/24"}
	if s := l.mustWrite(t, service("one", prefer), nil); len(s.Spec.ClusterIPs) != 1 {
		t.Errorf("with one family: got %v", s.Spec.ClusterIPs)
	}
	if _, err := l.write(t, service("require", require), nil); err == nil {
		t.Error("two families are given where there is one")
	}
	l.offered = []string{"10.96.0.0/24", "fd00::/112"}
	if s := l.mustWrite(t, service("plain", plain), nil); len(s.Spec.ClusterIPs) != 1 || s.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Errorf("with two families: got %v, want the flag's family", s.Spec.ClusterIPs)
	}
	two := l.mustWrite(t, service("require", require), nil)
	if len(two.Spec.ClusterIPs) != 2 {
		t.Errorf("with two families: got %v", two.Spec.ClusterIPs)
	}
	// The second one goes: who has an address of it can be changed.
	l.offered = []string{"10.96.0.0/24"}
	labelled := two.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	l.mustWrite(t, labelled, two)
	single := two.DeepCopy()
	single.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if s := l.mustWrite(t, single, two); len(s.Spec.ClusterIPs) != 1 {
		t.Errorf("made a service of one family: got %v", s.Spec.ClusterIPs)
	}
	if s := l.mustWrite(t, service("after", prefer), nil); len(s.Spec.ClusterIPs) != 1 {
		t.Errorf("with one family again: got %v", s.Spec.ClusterIPs)
	}
}

func TestRangesAreUsedWhole(t *testing.T) {
	for _, cidr := range []string{"10.0.0.0/8", "fd00::/64", "fd00::/48"} {
		l := newLedger(cidr)
		far := 0
		for i := range 50 {
			ip := netip.MustParseAddr(l.mustWrite(t, service(fmt.Sprintf("s%d", i), plain), nil).Spec.ClusterIP)
			if start := netip.MustParsePrefix(cidr).Addr(); !netip.PrefixFrom(start, start.BitLen()-16).Contains(ip) {
				far++
			}
		}
		if far < 40 {
			t.Errorf("%s: %d of 50 addresses are beyond the first 65,536", cidr, far)
		}
	}
}

func TestRequestedClusterIPMustBeFreeAndInRange(t *testing.T) {
	trace.Proves(t, "SVC-067", "SVC-068")
	l := newLedger("10.96.0.0/24")
	ask := func(ip string) func(*corev1.ServiceSpec) { return func(s *corev1.ServiceSpec) { s.ClusterIP = ip } }
	l.mustWrite(t, service("first", ask("10.96.0.10")), nil)
	for _, c := range []struct{ ip, want string }{
		{"10.96.0.10", `failed to allocate IP 10.96.0.10: provided IP is already allocated`},
		{"10.97.0.10", `the provided IP (10.97.0.10) is not in the valid range. The range of valid IPs is 10.96.0.0/24`},
		{"10.96.0.0", `is not in the valid range`},
		{"10.96.0.255", `is not in the valid range`},
		{"fd00::1", `spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster`},
	} {
		_, err := l.write(t, service("second", ask(c.ip)), nil)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.ip, err, c.want)
		}
	}
	if got := l.allocations(); !slices.Equal(got, []string{"clusterip/10.96.0.10"}) {
		t.Errorf("allocations after refusals: %v", got)
	}
}

func TestHeadlessAndExternalNamesHaveNoClusterIP(t *testing.T) {
	trace.Proves(t, "SVC-085")
	l := newLedger("10.96.0.0/24")
	headless := l.mustWrite(t, service("a", func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }), nil)
	if headless.Spec.ClusterIP != "None" || headless.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Errorf("headless: %+v", headless.Spec)
	}
	byHand := l.mustWrite(t, service("b", func(s *corev1.ServiceSpec) { s.ClusterIP, s.Selector = corev1.ClusterIPNone, nil }), nil)
	if *byHand.Spec.IPFamilyPolicy != corev1.IPFamilyPolicyRequireDualStack || len(byHand.Spec.IPFamilies) != 2 {
		t.Errorf("headless without selector: %+v", byHand.Spec)
	}
	l.mustWrite(t, service("c", func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "a.example" }), nil)
	if len(l.held) > 0 {
		t.Errorf("allocations: %v", l.allocations())
	}
}

func TestTypeChangesTakeAndGiveBack(t *testing.T) {
	trace.Proves(t, "SVC-165", "C-222", "C-223", "CONN-048", "SVC-152")
	l := newLedger("10.96.0.0/24")
	external := l.mustWrite(t, service("a", func(s *corev1.ServiceSpec) { s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "a.example" }), nil)

	next := external.DeepCopy()
	next.Spec.Type, next.Spec.ExternalName = corev1.ServiceTypeNodePort, ""
	ported := l.mustWrite(t, next, external)
	if ported.Spec.ClusterIP == "" || ported.Spec.Ports[0].NodePort < 30086 || ported.Spec.Ports[0].NodePort > 32767 {
		t.Fatalf("node port: %+v", ported.Spec)
	}

	next = ported.DeepCopy()
	next.Spec.Type, next.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	balanced := l.mustWrite(t, next, ported)
	if balanced.Spec.ClusterIP != ported.Spec.ClusterIP || balanced.Spec.Ports[0].NodePort != ported.Spec.Ports[0].NodePort || balanced.Spec.HealthCheckNodePort == 0 {
		t.Fatalf("load balancer: %+v", balanced.Spec)
	}
	if len(l.held) != 3 {
		t.Fatalf("allocations of a load balancer: %v", l.allocations())
	}

	balanced.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	next = balanced.DeepCopy()
	next.Spec.Type = corev1.ServiceTypeClusterIP
	inside := l.mustWrite(t, next, balanced)
	if len(inside.Status.LoadBalancer.Ingress) > 0 {
		t.Errorf("got %+v of a balancer that it is none of", inside.Status)
	}
	if got := l.allocations(); !slices.Equal(got, []string{"clusterip/" + inside.Spec.ClusterIP}) {
		t.Fatalf("allocations of a cluster IP: %v", got)
	}

	next = inside.DeepCopy()
	next.Spec.Type, next.Spec.ExternalName = corev1.ServiceTypeExternalName, "a.example"
	l.mustWrite(t, next, inside)
	if len(l.held) > 0 {
		t.Fatalf("allocations of an external name: %v", l.allocations())
	}
}

func TestDeletedServiceGivesEverythingBack(t *testing.T) {
	l := newLedger("10.96.0.0/24")
	s := l.mustWrite(t, service("a", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	}), nil)
	if err := core.Services.Commit(tx{l, "a"}, nil, s); err != nil {
		t.Fatal(err)
	}
	if len(l.held) > 0 {
		t.Errorf("allocations: %v", l.allocations())
	}
}

func TestNodePortsAreOneOfEachInTheCluster(t *testing.T) {
	trace.Proves(t, "SVC-099", "SVC-103")
	l := newLedger("10.96.0.0/24")
	ask := func(port int32) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, port }
	}
	l.mustWrite(t, service("a", ask(30080)), nil)
	for port, want := range map[int32]string{
		30080: "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated",
		80:    "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid range. The range of valid ports is 30000-32767",
	} {
		if _, err := l.write(t, service("b", ask(port)), nil); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("port %d: got %v, want %q", port, err, want)
		}
	}
	if len(l.held) != 2 {
		t.Errorf("a refused service left allocations: %v", l.allocations())
	}
}

func TestPortsOfOneNumberShareANodePort(t *testing.T) {
	l := newLedger("10.96.0.0/24")
	dns := []corev1.ServicePort{{Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP}, {Name: "tcp", Port: 53, Protocol: corev1.ProtocolTCP}, {Name: "metrics", Port: 9153}}
	s := l.mustWrite(t, service("dns", func(s *corev1.ServiceSpec) { s.Type, s.Ports = corev1.ServiceTypeNodePort, dns }), nil)
	p := s.Spec.Ports
	if p[0].NodePort == 0 || p[0].NodePort != p[1].NodePort || p[2].NodePort == p[0].NodePort {
		t.Errorf("node ports: %+v", p)
	}
	dns[1].NodePort = 30053
	s = l.mustWrite(t, service("dns2", func(s *corev1.ServiceSpec) { s.Type, s.Ports = corev1.ServiceTypeNodePort, dns }), nil)
	if p := s.Spec.Ports; p[0].NodePort != 30053 || p[1].NodePort != 30053 {
		t.Errorf("node ports with one asked for: %+v", p)
	}
}

func TestLoadBalancerMayDoWithoutNodePorts(t *testing.T) {
	l := newLedger("10.96.0.0/24")
	s := l.mustWrite(t, service("a", func(s *corev1.ServiceSpec) {
		s.Type, s.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, ptr.To(false)
	}), nil)
	if s.Spec.Ports[0].NodePort != 0 || len(l.held) != 1 {
		t.Errorf("ports %+v, allocations %v", s.Spec.Ports, l.allocations())
	}
}

func TestDualStackGivesOneAddressOfEachFamily(t *testing.T) {
	trace.Proves(t, "DUAL-017", "DUALT-002", "DUALT-006")
	policy := func(p corev1.IPFamilyPolicy) func(*corev1.ServiceSpec) {
		return func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = &p }
	}
	l := newLedger("10.96.0.0/24,fd00::/112")
	if s := l.mustWrite(t, service("single", plain), nil); len(s.Spec.ClusterIPs) != 1 || s.Spec.IPFamilies[0] != corev1.IPv4Protocol {
		t.Errorf("no policy: %+v", s.Spec)
	}
	six := l.mustWrite(t, service("six", func(s *corev1.ServiceSpec) { s.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }), nil)
	if !strings.HasPrefix(six.Spec.ClusterIP, "fd00::") {
		t.Errorf("IPv6 service got %s", six.Spec.ClusterIP)
	}
	both := l.mustWrite(t, service("both", policy(corev1.IPFamilyPolicyPreferDualStack)), nil)
	if len(both.Spec.ClusterIPs) != 2 || len(both.Spec.IPFamilies) != 2 {
		t.Fatalf("prefer both: %+v", both.Spec)
	}

	next := both.DeepCopy()
	next.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	next.Spec.ClusterIPs, next.Spec.IPFamilies = next.Spec.ClusterIPs[:1], next.Spec.IPFamilies[:1]
	if down := l.mustWrite(t, next, both); len(down.Spec.ClusterIPs) != 1 || l.held["clusterip/"+both.Spec.ClusterIPs[1]] != "" {
		t.Errorf("back to one: %+v, allocations %v", down.Spec, l.allocations())
	}

	one := newLedger("10.96.0.0/24")
	if s := one.mustWrite(t, service("a", policy(corev1.IPFamilyPolicyPreferDualStack)), nil); len(s.Spec.ClusterIPs) != 1 {
		t.Errorf("prefer both on a cluster of one: %+v", s.Spec)
	}
	_, err := one.write(t, service("b", policy(corev1.IPFamilyPolicyRequireDualStack)), nil)
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "this cluster is not configured for dual-stack services") {
		t.Errorf("require both on a cluster of one: %v", err)
	}
}
