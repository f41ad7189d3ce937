package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// site is two nodes, with pods, and a client that belongs to no cluster:
//
//	client 192.168.1.100 ---+--- n1 192.168.1.1 --- br0 10.244.1.1 --- a 10.244.1.2, b 10.244.1.3
//	                        +--- n2 192.168.1.2 --- br0 10.244.2.1 --- c 10.244.2.2
//
// and the same in IPv6, with fd00:1:: and fd00:244:N::. The client's way to
// service addresses, external IPs and load balancers is by n1, where the proxy runs.
type site struct {
	t                       *testing.T
	n1, n2, client, a, b, c *nettest.Host
	bridge                  string // of the pods of n1
	model                   *Model
	kernel                  *kernel
}

func newSite(t *testing.T) *site {
	t.Parallel()
	s := &site{
		t: t, bridge: "br0",
		n1: nettest.New(t, "n1"), n2: nettest.New(t, "n2"), client: nettest.New(t, "client"),
		a: nettest.New(t, "a"), b: nettest.New(t, "b"), c: nettest.New(t, "c"),
	}
	sw := nettest.New(t, "switch")
	s.n1.Router()
	s.n2.Router()
	for i, h := range []*nettest.Host{s.n1, s.n2, s.client} {
		nettest.Link(sw, fmt.Sprintf("p%d", i), h, "eth0")
	}
	sw.Bridge("br0", "p0", "p1", "p2")
	for i, n := range []*nettest.Host{s.n1, s.n2} {
		n.Sysctl("net/ipv4/conf/all/route_localnet", "1")
		n.Addr("eth0", fmt.Sprintf("192.168.1.%d/24", i+1))
		n.Addr("eth0", fmt.Sprintf("fd00:1::%d/64", i+1))
		n.Bridge("br0")
		n.Addr("br0", fmt.Sprintf("10.244.%d.1/24", i+1))
		n.Addr("br0", fmt.Sprintf("fd00:244:0:%d::1/64", i+1))
	}
	s.n1.Route("10.244.2.0/24", "192.168.1.2")
	s.n1.Route("fd00:244:0:2::/64", "fd00:1::2")
	s.n2.Route("10.244.1.0/24", "192.168.1.1")
	s.n2.Route("fd00:244:0:1::/64", "fd00:1::1")
	s.pod(s.n1, s.a, 1, 2)
	s.pod(s.n1, s.b, 1, 3)
	s.pod(s.n2, s.c, 2, 2)
	s.client.Addr("eth0", "192.168.1.100/24")
	s.client.Addr("eth0", "fd00:1::100/64")
	for _, p := range []string{"10.96.0.0/12", "198.51.100.0/24", "203.0.113.0/24"} {
		s.client.Route(p, "192.168.1.1")
		s.n2.Route(p, "192.168.1.1")
	}
	s.n1.Route("0.0.0.0/0", "192.168.1.100") // service addresses need a route of some kind
	s.n1.Route("::/0", "fd00:1::100")
	s.model = NewModel(Config{
		NodeName:     "n1",
		ClusterCIDRs: mustPrefixes("10.244.0.0/16", "fd00:244::/48"),
		ServiceCIDRs: mustPrefixes("10.96.0.0/12"),
	})
	s.open()
	return s
}

// pod makes a pod as the product's network does: an address in the subnet of
// the node, with the node as the way even to the neighbours.
func (s *site) pod(node, pod *nettest.Host, subnet, number int) {
	port := fmt.Sprintf("veth%d", number)
	nettest.Link(node, port, pod, "eth0")
	node.Port(s.bridge, port)
	pod.Addr("eth0", fmt.Sprintf("10.244.%d.%d/24", subnet, number))
	pod.Addr("eth0", fmt.Sprintf("fd00:244:0:%d::%d/64", subnet, number))
	gw4, gw6 := fmt.Sprintf("10.244.%d.1", subnet), fmt.Sprintf("fd00:244:0:%d::1", subnet)
	// The half with the gateway last: once it is there, the gateway itself is no
	// longer a direct neighbour as far as the kernel's checks of routes go.
	pod.Route("0.0.0.0/0", gw4)
	pod.Route(fmt.Sprintf("10.244.%d.128/25", subnet), gw4)
	pod.Route(fmt.Sprintf("10.244.%d.0/25", subnet), gw4)
	pod.Route("::/0", gw6)
	pod.Route(fmt.Sprintf("fd00:244:0:%d:8000::/65", subnet), gw6)
	pod.Route(fmt.Sprintf("fd00:244:0:%d::/65", subnet), gw6)
}

func (s *site) open() {
	s.t.Helper()
	s.n1.Must(func() (err error) {
		s.kernel, err = openKernel()
		return err
	})
	s.t.Cleanup(s.kernel.close)
}

// put takes in objects and brings the outcome to the kernel.
func (s *site) put(objects ...any) {
	s.t.Helper()
	full := !s.model.Dirty() && len(s.model.owners) == 0
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.Service:
			s.model.SetService(o)
		case *discoveryv1.EndpointSlice:
			s.model.SetSlice(o)
		case *corev1.Pod:
			s.model.SetPod(o)
		}
	}
	step := s.model.Commit()
	if full {
		step = s.model.Full()
	}
	s.applyStep(step)
}

func (s *site) applyStep(step *Step) {
	s.t.Helper()
	if err := s.kernel.Apply(context.Background(), step.Tables[:]...); err != nil {
		s.t.Fatalf("apply: %v", err)
	}
	for _, f := range families {
		if _, err := s.kernel.endStale(step.Flows, f); err != nil {
			s.t.Fatal(err)
		}
	}
}

func service(name, ip string, change ...func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	svc.Spec.Type = corev1.ServiceTypeClusterIP
	svc.Spec.ClusterIPs = strings.Fields(ip)
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	svc.Spec.Ports = []corev1.ServicePort{{Name: "t", Port: 80, Protocol: corev1.ProtocolTCP}, {Name: "u", Port: 80, Protocol: corev1.ProtocolUDP}}
	for _, c := range change {
		c(svc)
	}
	return svc
}

func nodePort(svc *corev1.Service) {
	svc.Spec.Type = corev1.ServiceTypeNodePort
	for i := range svc.Spec.Ports {
		svc.Spec.Ports[i].NodePort = 30080
	}
}

func sticking(svc *corev1.Service) { svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }

// backends makes a slice of addresses, "ip@node" each, that serve on port 8080.
func backends(name string, list ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: name},
	}}
	s.AddressType = discoveryv1.AddressTypeIPv4
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		portName, number := map[corev1.Protocol]string{"TCP": "t", "UDP": "u"}[p], int32(8080)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &portName, Port: &number, Protocol: &p})
	}
	for _, e := range list {
		ip, node, _ := strings.Cut(e, "@")
		if strings.Contains(ip, ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
			s.Name = name + "-6"
		}
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{ip}, NodeName: &node})
	}
	return s
}

// serve lets the pods answer with their names, over both protocols and families.
func (s *site) serve() {
	for name, h := range map[string]*nettest.Host{"a": s.a, "b": s.b, "c": s.c} {
		h.Serve(name, "tcp", ":8080")
		for _, addr := range []string{"10.244.1.2", "10.244.1.3", "10.244.2.2", "fd00:244:0:1::2", "fd00:244:0:1::3", "fd00:244:0:2::2"} {
			if owns(h, addr) {
				h.Serve(name, "udp", net.JoinHostPort(addr, "8080")) // a wildcard socket might answer from another address
			}
		}
	}
}

func owns(h *nettest.Host, ip string) bool {
	list, _ := h.Netlink().AddrList(nil, 0)
	for _, a := range list {
		if a.IP.Equal(net.ParseIP(ip)) {
			return true
		}
	}
	return false
}

// ask asks n times and returns who answered how often, and the client addresses seen.
func (s *site) ask(from *nettest.Host, network, addr string, n int) (names map[string]int, clients []string) {
	s.t.Helper()
	names = map[string]int{}
	for range n {
		name, client, err := from.Ask(network, addr)
		if err != nil {
			s.t.Errorf("%s asks %s %s: %v", from.Name, network, addr, err)
			return names, clients
		}
		names[name]++
		if !slices.Contains(clients, client) {
			clients = append(clients, client)
		}
	}
	return names, clients
}

// reach checks that asking reaches one of want ("abc"), each of them within 64 questions,
// and that the pods see the client's address as it is said (empty: no matter).
func (s *site) reach(from *nettest.Host, addr, want, client string) {
	s.t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		n := 64
		if len(want) == 1 {
			n = 3
		}
		names, clients := s.ask(from, network, addr, n)
		for _, w := range want {
			if names[string(w)] == 0 {
				s.t.Errorf("%s asks %s %s %d times: answers %v, want all of %q", from.Name, network, addr, n, names, want)
			}
			delete(names, string(w))
		}
		if len(names) > 0 {
			s.t.Errorf("%s asks %s %s: also answered %v, want only %q", from.Name, network, addr, names, want)
		}
		if client != "" && !slices.Equal(clients, []string{client}) {
			s.t.Errorf("%s asks %s %s: pods see %q, want %q", from.Name, network, addr, clients, client)
		}
	}
}

// refused checks that connections are refused at once.
func (s *site) refused(from *nettest.Host, addr string) {
	s.t.Helper()
	for _, network := range []string{"tcp", "udp"} {
		start := time.Now()
		_, _, err := from.Ask(network, addr)
		// The sender of a datagram on the node itself may be told that way.
		notPermitted := network == "udp" && from == s.n1 && errors.Is(err, unix.EPERM)
		if !errors.Is(err, unix.ECONNREFUSED) && !notPermitted {
			s.t.Errorf("%s asks %s %s: got %v, want connection refused", from.Name, network, addr, err)
		}
		if d := time.Since(start); d > 2*time.Second {
			s.t.Errorf("%s asks %s %s: refused after %s, want at once", from.Name, network, addr, d)
		}
	}
}

// dropped checks that nothing comes back.
func (s *site) dropped(from *nettest.Host, addr string) {
	s.t.Helper()
	err := from.Do(func() error {
		c, err := net.DialTimeout("tcp", addr, 300*time.Millisecond)
		if err == nil {
			_ = c.Close()
		}
		return err
	})
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		s.t.Errorf("%s asks %s: got %v, want a timeout", from.Name, addr, err)
	}
}

func TestClusterIPReachesEveryEndpointAtRandom(t *testing.T) {
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2"))
	names, _ := s.ask(s.client, "udp", "10.96.0.10:80", 300)
	trace.Proves(t, "CONN-007", "SVC-048", "SVC-175", "SVC-178", "TOPO-002")
	for _, n := range []string{"a", "b", "c"} {
		if names[n] < 60 || names[n] > 140 {
			t.Errorf("300 questions were answered by %v, want about 100 each", names)
		}
	}
	s.reach(s.c, "10.244.1.2:8080", "a", "10.244.2.2") // pods reach each other
	trace.Proves(t, "SVC-005", "SVC-032", "SVC-177", "SVC-178")
	s.reach(s.n1, "10.96.0.10:80", "abc", "")
	s.put(backends("web", "10.244.2.2@n2"))
	trace.Proves(t, "SVC-051")
	s.reach(s.a, "10.96.0.10:80", "c", "10.244.1.2")
	s.put(backends("web", "10.244.1.3@n1"))
	s.reach(s.a, "10.96.0.10:80", "b", "10.244.1.2") // a neighbour, whose answers must come back through the node
	s.reach(s.client, "10.96.0.10:80", "b", "10.244.1.1")
}

// TestEndpointOnTheNodeItself is what the API server and the cluster DNS are:
// processes of the node behind a cluster IP.
func TestEndpointOnTheNodeItself(t *testing.T) {
	s := newSite(t)
	s.n1.Serve("node", "tcp", "192.168.1.1:8080")
	s.n1.Serve("node", "udp", "192.168.1.1:8080")
	s.put(service("api", "10.96.0.1", nodePort), backends("api", "192.168.1.1@n1"))
	for _, from := range []*nettest.Host{s.a, s.n1, s.c, s.client} {
		for _, network := range []string{"tcp", "udp"} {
			for _, addr := range []string{"10.96.0.1:80", "192.168.1.1:30080"} {
				if names, _ := s.ask(from, network, addr, 3); names["node"] != 3 {
					t.Errorf("%s asks %s %s: %v answered, want the node", from.Name, network, addr, names)
				}
			}
		}
	}
	s.ask(s.n1, "tcp", "127.0.0.1:30080", 3)
}

func TestSameNodeServiceWorksWithoutBridgeNetfilter(t *testing.T) {
	for _, value := range []string{"0", "1"} {
		t.Run("bridge-nf-call-iptables="+value, func(t *testing.T) {
			s := newSite(t)
			for _, name := range []string{"bridge-nf-call-iptables", "bridge-nf-call-ip6tables"} {
				s.n1.Sysctl("net/bridge/"+name, value)
			}
			s.serve()
			s.put(service("web", "10.96.0.10 fd00:96::a"), backends("web", "10.244.1.2@n1", "10.244.1.3@n1"), backends("web", "fd00:244:0:1::2@n1", "fd00:244:0:1::3@n1"))
			s.reach(s.a, "10.96.0.10:80", "ab", "")
			s.reach(s.a, "[fd00:96::a]:80", "ab", "")
			s.put(backends("web", "10.244.1.3@n1"), backends("web", "fd00:244:0:1::3@n1"))
			s.reach(s.a, "10.96.0.10:80", "b", "10.244.1.2")
			s.reach(s.a, "[fd00:96::a]:80", "b", "fd00:244:0:1::2")
		})
	}
}

func TestNodePortIsServedOnEveryAddressOfTheNode(t *testing.T) {
	trace.Proves(t, "SVC-052", "SVC-095", "SVC-100", "SVC-106", "SVC-107")
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10", nodePort), backends("web", "10.244.1.2@n1", "10.244.2.2@n2"))
	s.reach(s.client, "192.168.1.1:30080", "ac", "")
	s.reach(s.n1, "192.168.1.1:30080", "ac", "")
	s.reach(s.n1, "127.0.0.1:30080", "ac", "")
	s.reach(s.n1, "10.244.1.1:30080", "ac", "")
	s.reach(s.b, "192.168.1.1:30080", "ac", "")
	s.reach(s.c, "192.168.1.1:30080", "ac", "")
	s.reach(s.client, "10.96.0.10:80", "ac", "")
	s.put(backends("web", "10.244.2.2@n2"))
	s.reach(s.client, "192.168.1.1:30080", "c", "192.168.1.1")
	s.reach(s.n1, "127.0.0.1:30080", "c", "192.168.1.1")
	s.put(service("web", "10.96.0.10"))
	s.refused(s.client, "192.168.1.1:30080")
}

func TestNodePortIsServedOnlyOnTheAddressesSetByFlag(t *testing.T) {
	trace.Proves(t, "SVC-104", "SVC-105")
	s := newSite(t)
	s.serve()
	s.model = NewModel(Config{NodeName: "n1", NodePortAddresses: mustPrefixes("127.0.0.0/8")})
	s.put(service("web", "10.96.0.10", nodePort), backends("web", "10.244.1.2@n1"))
	s.reach(s.n1, "127.0.0.1:30080", "a", "")
	s.refused(s.client, "192.168.1.1:30080")
	s.refused(s.n1, "192.168.1.1:30080")
}

func TestEndpointThatRefusesIsNotReplacedByAnother(t *testing.T) {
	trace.Proves(t, "SVC-050")
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	s.reach(s.client, "10.96.0.10:80", "a", "")
	dead := backends("web", "10.244.1.2@n1")
	dead.Ports[0].Port, dead.Ports[1].Port = new(int32), new(int32)
	*dead.Ports[0].Port, *dead.Ports[1].Port = 8099, 8099 // nobody listens there
	s.put(dead)
	s.refused(s.client, "10.96.0.10:80")
}

func TestServiceWithoutEndpointsRefusesAtOnce(t *testing.T) {
	s := newSite(t)
	s.put(service("web", "10.96.0.10 fd00:96::a", nodePort))
	s.n2.Route("fd00:96::/64", "fd00:1::1")
	for _, from := range []*nettest.Host{s.a, s.n1, s.client, s.c} {
		s.refused(from, "10.96.0.10:80")
		s.refused(from, "10.96.0.10:81") // a port that the service does not have
		s.refused(from, "192.168.1.1:30080")
	}
	s.refused(s.n1, "127.0.0.1:30080")
	s.refused(s.a, "[fd00:96::a]:80")
	s.refused(s.n1, "[fd00:96::a]:80")
	s.refused(s.n1, "[fd00:1::1]:30080")
	s.dropped(s.a, "10.96.0.11:80") // an address that no service has
}

func TestSessionAffinityLastsAsLongAsTheEndpoint(t *testing.T) {
	trace.Proves(t, "SVC-062", "C-231", "C-232")
	s := newSite(t)
	s.serve()
	all := []string{"10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2"}
	s.put(service("web", "10.96.0.10", nodePort, sticking), backends("web", all...))
	first, _ := s.ask(s.client, "tcp", "10.96.0.10:80", 20)
	if len(first) != 1 {
		t.Fatalf("20 connections of one client were answered by %v, want one pod", first)
	}
	viaNode, _ := s.ask(s.client, "tcp", "192.168.1.1:30080", 20)
	if len(viaNode) != 1 || viaNode[nameOf(first)] == 0 {
		t.Errorf("by the node port %v answered, want %v as by the cluster IP", viaNode, first)
	}
	// The endpoint goes: the client gets another one, and keeps that also when the first is back.
	gone := map[string]string{"a": all[0], "b": all[1], "c": all[2]}[nameOf(first)]
	s.put(backends("web", slices.DeleteFunc(slices.Clone(all), func(e string) bool { return e == gone })...))
	second, _ := s.ask(s.client, "tcp", "10.96.0.10:80", 20)
	if len(second) != 1 || second[nameOf(first)] > 0 {
		t.Fatalf("after %v went, %v answered, want one other pod", first, second)
	}
	s.put(backends("web", all...))
	third, _ := s.ask(s.client, "tcp", "10.96.0.10:80", 20)
	if nameOf(third) != nameOf(second) || len(third) != 1 {
		t.Errorf("after %v came back, %v answered, want still %v", first, third, second)
	}
	// Another protocol of the service has an affinity of its own.
	udp, _ := s.ask(s.client, "udp", "10.96.0.10:80", 20)
	if len(udp) != 1 {
		t.Errorf("20 UDP flows of one client were answered by %v, want one pod", udp)
	}
	// Affinity is switched off.
	s.put(service("web", "10.96.0.10", nodePort))
	s.reach(s.client, "10.96.0.10:80", "abc", "")
}

func nameOf(m map[string]int) string {
	for k := range m {
		return k
	}
	return ""
}

func TestSessionAffinityEndsWithItsTimeout(t *testing.T) {
	trace.Proves(t, "SVC-063")
	s := newSite(t)
	s.serve()
	second := int32(1)
	s.put(service("web", "10.96.0.10", sticking, func(svc *corev1.Service) {
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &second}}
	}), backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
	s.ask(s.client, "tcp", "10.96.0.10:80", 2)
	keys, err := s.kernel.Conn().Keys(tableOf(nft.IPv4), affinitySet)
	if err != nil || len(keys) != 1 {
		t.Fatalf("remembered clients: got %d, %v, want 1", len(keys), err)
	}
	wait.Until(t, func() error { // for a second
		keys, err := s.kernel.Conn().Keys(tableOf(nft.IPv4), affinitySet)
		if err == nil && len(keys) > 0 {
			err = errors.New("the client is still remembered")
		}
		return err
	})
}

func TestPodReachesItselfThroughItsService(t *testing.T) {
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10 fd00:96::a", nodePort), backends("web", "10.244.1.2@n1"), backends("web", "fd00:244:0:1::2@n1"))
	s.reach(s.a, "10.96.0.10:80", "a", "10.244.1.1")
	s.reach(s.a, "192.168.1.1:30080", "a", "10.244.1.1")
	s.reach(s.a, "[fd00:96::a]:80", "a", "fd00:244:0:1::1")
}

func TestUDPFlowMovesWhenItsEndpointGoes(t *testing.T) {
	trace.Proves(t, "C-234")
	s := newSite(t)
	s.serve()
	for name, addr := range map[string]string{"cluster IP": "10.96.0.10:80", "node port": "192.168.1.1:30080"} {
		t.Run(name, func(t *testing.T) {
			s.t = t
			s.put(service("web", "10.96.0.10", nodePort), backends("web", "10.244.1.2@n1"))
			c, err := s.client.Dial("udp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			expectName := func(when, want string) {
				t.Helper()
				if name, _, err := nettest.AskOn(c); err != nil || name != want {
					t.Errorf("%s: got %q, %v, want %q", when, name, err, want)
				}
			}
			expectName("at first", "a")
			s.put(backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
			expectName("when another endpoint came", "a")
			s.put(backends("web", "10.244.1.3@n1"))
			expectName("when the endpoint went", "b")
			s.put(service("web", "10.96.0.10", nodePort, func(svc *corev1.Service) { svc.Spec.Ports = svc.Spec.Ports[:1] }))
			if name, _, err := nettest.AskOn(c); err == nil {
				t.Errorf("when the UDP port went: got %q, want no answer", name)
			}
			s.put(service("web", "10.96.0.10", nodePort))
			// The refusal may still be queued on the socket.
			if _, _, err := nettest.AskOn(c); err != nil && !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("when the UDP port was back: %v", err)
			}
			expectName("when the UDP port was back", "b")
		})
	}
}

func TestExternalAndLoadBalancerAddressesAreServed(t *testing.T) {
	trace.Proves(t, "SVC-111", "SVC-159", "SVC-166", "SVC-167", "SVC-168")
	s := newSite(t)
	s.serve()
	balancer := func(ranges ...string) *corev1.Service {
		return service("web", "10.96.0.10", nodePort, func(svc *corev1.Service) {
			svc.Spec.Type = corev1.ServiceTypeLoadBalancer
			svc.Spec.ExternalIPs = []string{"198.51.100.5"}
			svc.Spec.LoadBalancerSourceRanges = ranges
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
		})
	}
	s.put(balancer(), backends("web", "10.244.1.2@n1", "10.244.2.2@n2"))
	for _, from := range []*nettest.Host{s.client, s.n1, s.b} {
		s.reach(from, "198.51.100.5:80", "ac", "")
		s.reach(from, "203.0.113.7:80", "ac", "")
	}
	// Nobody but the proxy's rules knows of them: who owns them is not our affair.
	if have, err := s.n1.Netlink().AddrList(nil, netlink.FAMILY_V4); err != nil || slices.ContainsFunc(have, func(a netlink.Addr) bool {
		return a.IP.String() == "198.51.100.5" || a.IP.String() == "203.0.113.7"
	}) {
		t.Errorf("addresses of the node: %v, %v; want none of the service's", have, err)
	}
	s.put(balancer("10.0.0.0/8"))
	s.dropped(s.client, "203.0.113.7:80")
	s.reach(s.b, "203.0.113.7:80", "ac", "")
	s.reach(s.client, "198.51.100.5:80", "ac", "")
	s.put(balancer("10.0.0.0/8", "192.168.1.100/32", "192.168.1.0/24", "10.244.0.0/16")) // some of them within others
	s.reach(s.client, "203.0.113.7:80", "ac", "")
	rival := balancer("192.168.0.0/16")
	rival.Name, rival.Spec.ClusterIPs, rival.Spec.ClusterIP = "web-rival", []string{"10.96.0.11"}, "10.96.0.11"
	s.put(rival) // claims the same addresses and ports: whoever has them, all rules are in force
	s.reach(s.client, "203.0.113.7:80", "ac", "")
	s.put(balancer("192.168.1.0/33")) // lets nobody in
	s.dropped(s.client, "203.0.113.7:80")
	s.dropped(s.b, "203.0.113.7:80")
	s.sound()
}

// TestBalancerWithAllThatServicesHave has source ranges, affinity and a policy at once.
func TestBalancerWithAllThatServicesHave(t *testing.T) {
	trace.Proves(t, "SVC-062", "SVC-151", "SVC-159")
	s := newSite(t)
	s.serve()
	s.client.Route("10.244.0.0/16", "192.168.1.1")
	s.client.Route("fd00:244::/48", "fd00:1::1")
	s.client.Route("fd00:203::/64", "fd00:1::1")
	svc := service("web", "10.96.0.10 fd00:96::a", nodePort, sticking, func(svc *corev1.Service) {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.LoadBalancerSourceRanges = []string{"192.168.1.100/32", "10.244.0.0/16", "fd00:1::100/128"}
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}, {IP: "fd00:203::7"}}
	})
	all := []any{backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2"), backends("web", "fd00:244:0:1::2@n1", "fd00:244:0:1::3@n1", "fd00:244:0:2::2@n2")}
	s.put(append(all, svc)...)
	for addr, client := range map[string]string{
		"203.0.113.7:80": "192.168.1.100", "192.168.1.1:30080": "192.168.1.100", "[fd00:203::7]:80": "fd00:1::100", "[fd00:1::1]:30080": "fd00:1::100",
	} {
		names, clients := s.ask(s.client, "tcp", addr, 20)
		if len(names) != 1 || names["c"] > 0 || !slices.Equal(clients, []string{client}) {
			t.Errorf("%s: %v answered and saw %v, want one pod of this node that sees %s", addr, names, clients, client)
		}
	}
	s.dropped(s.n2, "203.0.113.7:80") // has no range
	if names, _ := s.ask(s.a, "tcp", "203.0.113.7:80", 20); len(names) != 1 {
		t.Errorf("a pod: %v answered, want always the same pod", names)
	}
	s.put(backends("web", "10.244.2.2@n2"), backends("web", "fd00:244:0:2::2@n2")) // none is left here
	s.dropped(s.client, "203.0.113.7:80")
	s.dropped(s.client, "[fd00:1::1]:30080")
	s.reach(s.a, "203.0.113.7:80", "c", "")
	s.put(all...)
	if names, _ := s.ask(s.client, "tcp", "203.0.113.7:80", 20); len(names) != 1 || names["c"] > 0 {
		t.Errorf("with endpoints again: %v answered, want one pod of this node", names)
	}
	s.put(backends("web"), backends("web", "fd00:244:0:2::2@n2"))
	s.refused(s.client, "192.168.1.1:30080")
	s.sound()
}

// TestBalancersThatDoMoreAreHandedToTheEdge leads to the edge of the node what comes to a balancer that is asked for more
// than packets; all other ways to the Service stay as they are.
func TestBalancersThatDoMoreAreHandedToTheEdge(t *testing.T) {
	trace.Proves(t, "SVC-111", "SVC-151", "SVC-159")
	s := newSite(t)
	s.serve()
	here := []any{backends("web", "10.244.1.2@n1", "10.244.2.2@n2"), backends("web", "fd00:244:0:1::2@n1")}
	s.put(here...)
	s.model.cfg.Edge = true
	s.model.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.168.1.1"}, {Type: corev1.NodeInternalIP, Address: "fd00:1::1"},
	}}})
	s.n1.Serve("edge", "tcp", ":30080")
	s.client.Route("fd00:203::/64", "fd00:1::1")
	balancer := func(policy corev1.ServiceExternalTrafficPolicy, ranges ...string) *corev1.Service {
		return service("web", "10.96.0.10 fd00:96::a", nodePort, func(svc *corev1.Service) {
			svc.Annotations = map[string]string{"kemudi.io/load-balancer-proxy-protocol": "v1"}
			svc.Spec.Type, svc.Spec.ExternalTrafficPolicy, svc.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, policy, ranges
			svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}, {IP: "fd00:203::7"}}
			svc.Status.Conditions = []metav1.Condition{{Type: core.ConditionBalanced, Status: metav1.ConditionTrue}}
		})
	}
	toEdge := func(from *nettest.Host, address, client string) {
		t.Helper()
		name, saw, err := from.Ask("tcp", address)
		if err != nil || name != "edge" || client != "" && saw != client {
			t.Errorf("%s to %s: %s answered and saw %s, %v; want the edge, and %s", from.Name, address, name, saw, err, client)
		}
	}
	s.put(balancer(corev1.ServiceExternalTrafficPolicyCluster))
	toEdge(s.client, "203.0.113.7:80", "192.168.1.100")
	toEdge(s.client, "[fd00:203::7]:80", "fd00:1::100")
	toEdge(s.a, "203.0.113.7:80", "10.244.1.2")
	toEdge(s.n1, "203.0.113.7:80", "")
	s.reach(s.client, "192.168.1.1:30080", "ac", "") // node port and cluster IP are as ever
	s.reach(s.b, "10.96.0.10:80", "ac", "")
	if name, _, err := s.client.Ask("udp", "203.0.113.7:80"); err != nil || name == "edge" {
		t.Errorf("UDP: %s answered, %v; want a pod", name, err)
	}
	s.put(balancer(corev1.ServiceExternalTrafficPolicyCluster, "10.0.0.0/8"))
	s.dropped(s.client, "203.0.113.7:80")
	toEdge(s.a, "203.0.113.7:80", "10.244.1.2")
	s.put(balancer(corev1.ServiceExternalTrafficPolicyLocal))
	toEdge(s.client, "203.0.113.7:80", "192.168.1.100")
	sticky := balancer(corev1.ServiceExternalTrafficPolicyLocal)
	sticking(sticky)
	s.put(sticky) // of which the edge sees to
	toEdge(s.client, "203.0.113.7:80", "192.168.1.100")
	s.put(balancer(corev1.ServiceExternalTrafficPolicyLocal))
	s.put(backends("web", "10.244.2.2@n2")) // none is left here
	s.dropped(s.client, "203.0.113.7:80")
	toEdge(s.a, "203.0.113.7:80", "10.244.1.2")
	s.put(backends("web"), backends("web", "fd00:244:0:2::2@n2"))
	s.refused(s.client, "203.0.113.7:80")
	// What cannot be had is not passed on without it, nor is anything where there is no edge.
	broken := balancer(corev1.ServiceExternalTrafficPolicyCluster)
	broken.Annotations["kemudi.io/load-balancer-proxy-protocol"] = "v3"
	s.put(append(here, broken)...)
	s.dropped(s.client, "203.0.113.7:80")
	s.put(balancer(corev1.ServiceExternalTrafficPolicyCluster))
	toEdge(s.client, "203.0.113.7:80", "192.168.1.100")
	s.model.cfg.Edge = false
	s.put(balancer(corev1.ServiceExternalTrafficPolicyCluster))
	s.dropped(s.client, "203.0.113.7:80")
	plain := balancer(corev1.ServiceExternalTrafficPolicyCluster)
	plain.Annotations = nil
	s.put(plain)
	s.reach(s.client, "203.0.113.7:80", "ac", "")
	s.sound()
}

func TestAddressOfAnotherServiceIsNoEndpoint(t *testing.T) {
	trace.Proves(t, "SVC-026")
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"), service("front", "10.96.0.11"), backends("front", "10.96.0.10"))
	s.reach(s.client, "10.96.0.10:80", "a", "")
	s.dropped(s.client, "10.96.0.11:80")
}

func TestExternalTrafficPolicyLocalKeepsTheClientAddress(t *testing.T) {
	trace.Proves(t, "SVC-151")
	s := newSite(t)
	s.serve()
	local := service("web", "10.96.0.10", nodePort, func(svc *corev1.Service) {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.ExternalIPs = []string{"198.51.100.5"}
	})
	open := local.DeepCopy()
	open.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	s.put(open, backends("web", "10.244.2.2@n2"))
	trace.Proves(t, "SVC-150")
	s.reach(s.client, "198.51.100.5:80", "c", "192.168.1.1") // the client's address is hidden
	s.put(local, backends("web", "10.244.1.2@n1", "10.244.2.2@n2"))
	s.client.Route("10.244.0.0/16", "192.168.1.1")
	s.reach(s.client, "192.168.1.1:30080", "a", "192.168.1.100")
	s.reach(s.client, "198.51.100.5:80", "a", "192.168.1.100")
	s.reach(s.b, "198.51.100.5:80", "ac", "10.244.1.3")
	s.reach(s.n1, "192.168.1.1:30080", "ac", "")
	s.reach(s.n1, "127.0.0.1:30080", "ac", "")
	s.put(backends("web", "10.244.2.2@n2"))
	s.dropped(s.client, "192.168.1.1:30080")
	s.dropped(s.client, "198.51.100.5:80")
	s.reach(s.b, "192.168.1.1:30080", "c", "")
	s.put(backends("web"))
	s.refused(s.client, "192.168.1.1:30080")
}

func TestInternalTrafficPolicyLocalStaysOnTheNode(t *testing.T) {
	s := newSite(t)
	s.serve()
	policy := corev1.ServiceInternalTrafficPolicyLocal
	s.put(service("web", "10.96.0.10", func(svc *corev1.Service) { svc.Spec.InternalTrafficPolicy = &policy }),
		backends("web", "10.244.1.2@n1", "10.244.2.2@n2"))
	s.reach(s.b, "10.96.0.10:80", "a", "10.244.1.3")
	s.put(backends("web", "10.244.2.2@n2"))
	s.dropped(s.b, "10.96.0.10:80")
	s.put(backends("web"))
	s.refused(s.b, "10.96.0.10:80")
}

func TestDualStackServiceIsServedInBothFamilies(t *testing.T) {
	trace.Proves(t, "DUAL-003")
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10 fd00:96::a", nodePort, sticking), backends("web", "10.244.1.2@n1"), backends("web", "fd00:244:0:1::3@n1"))
	s.client.Route("fd00:96::/64", "fd00:1::1")
	s.reach(s.client, "10.96.0.10:80", "a", "")
	s.reach(s.client, "[fd00:96::a]:80", "b", "")
	s.reach(s.client, "[fd00:1::1]:30080", "b", "")
	s.reach(s.n1, "[fd00:1::1]:30080", "b", "")
	s.refused(s.n1, "[::1]:30080") // as it cannot be served
	s.put(service("web", "10.96.0.10 fd00:96::a"), backends("web", "fd00:244:0:1::3@n1", "fd00:244:0:2::2@n2"))
	s.reach(s.client, "[fd00:96::a]:80", "bc", "")
	s.reach(s.a, "[fd00:96::a]:80", "bc", "fd00:244:0:1::2")
}

// TestLargeDatagramsReachEndpoints sends more than fits one packet, in pieces of which only the first one says the port.
func TestLargeDatagramsReachEndpoints(t *testing.T) {
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10 fd00:96::a", nodePort), backends("web", "10.244.1.2@n1"), backends("web", "fd00:244:0:1::3@n1"))
	s.client.Route("fd00:96::/64", "fd00:1::1")
	for addr, want := range map[string]string{"10.96.0.10:80": "a", "192.168.1.1:30080": "a", "[fd00:96::a]:80": "b", "[fd00:1::1]:30080": "b"} {
		for who, from := range map[string]*nettest.Host{"client": s.client, "pod": s.a, "node": s.n1} {
			c, err := from.Dial("udp", addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if _, err := c.Write(make([]byte, 4000)); err != nil {
				t.Fatal(err)
			}
			if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			answer := make([]byte, 100)
			if n, err := c.Read(answer); err != nil || !strings.HasPrefix(string(answer[:n]), want+" ") {
				t.Errorf("from %s to %s: got %q, %v, want an answer of %s", who, addr, answer[:n], err, want)
			}
		}
	}
}

func TestHostPortsOfPods(t *testing.T) {
	s := newSite(t)
	s.serve()
	pod := func(name, ip, hostIP string, proto corev1.Protocol, port int32) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 8080, HostPort: port, HostIP: hostIP, Protocol: proto}}}}
		p.Status.PodIP = ip
		return p
	}
	ask := func(from *nettest.Host, network, addr, want string) {
		t.Helper()
		if names, _ := s.ask(from, network, addr, 2); names[want] != 2 {
			t.Errorf("%s asks %s %s: %v answered, want %q", from.Name, network, addr, names, want)
		}
	}
	s.put(
		pod("one", "10.244.1.2", "127.0.0.1", corev1.ProtocolTCP, 54323),
		pod("two", "10.244.1.3", "192.168.1.1", corev1.ProtocolTCP, 54323),
		pod("three", "10.244.1.2", "192.168.1.1", corev1.ProtocolUDP, 54323),
		pod("any", "10.244.1.3", "", corev1.ProtocolTCP, 8088),
		pod("six", "fd00:244:0:1::2", "::1", corev1.ProtocolTCP, 54323),
		pod("of six", "fd00:244:0:1::3", "fd00:1::1", corev1.ProtocolTCP, 54323))
	ask(s.n1, "tcp", "127.0.0.1:54323", "a")
	ask(s.n1, "tcp", "192.168.1.1:54323", "b")
	ask(s.n1, "udp", "192.168.1.1:54323", "a")
	ask(s.client, "tcp", "192.168.1.1:54323", "b")
	ask(s.client, "udp", "192.168.1.1:54323", "a")
	ask(s.c, "tcp", "192.168.1.1:54323", "b")
	ask(s.b, "tcp", "192.168.1.1:54323", "b") // itself
	ask(s.a, "tcp", "192.168.1.1:54323", "b")
	for _, addr := range []string{"127.0.0.1:8088", "192.168.1.1:8088", "10.244.1.1:8088"} {
		ask(s.n1, "tcp", addr, "b")
	}
	for addr, want := range map[string]string{"[::1]:54323": "a", "[fd00:1::1]:54323": "b"} { // as long as the source is none that can go nowhere
		c, err := s.n1.DialFrom("tcp", "[fd00:1::1]:0", addr)
		if err != nil {
			t.Fatalf("%s: %v", addr, err)
		}
		if name, _, err := nettest.AskOn(c); err != nil || name != want {
			t.Errorf("%s: got %q, %v, want %s", addr, name, err, want)
		}
		c.Close()
	}
	if _, client, err := s.client.Ask("tcp", "192.168.1.1:8088"); err != nil || client != "192.168.1.100" {
		t.Errorf("the pod sees %q, %v, want the client's own address", client, err)
	}
	s.model.DeletePod("default", "any")
	s.put()
	s.refused(s.client, "192.168.1.1:8088")
}

func TestRestartKeepsConnectionsAndAffinity(t *testing.T) {
	trace.Proves(t, "SVC-049")
	s := newSite(t)
	s.serve()
	web, old := service("web", "10.96.0.10", sticking), service("old", "10.96.0.11", nodePort)
	all := backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2")
	s.put(web, all, old, backends("old", "10.244.1.2@n1"))
	c, err := s.client.Dial("tcp", "10.96.0.10:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first, _, err := nettest.AskOn(c)
	if err != nil {
		t.Fatal(err)
	}
	// The proxy is killed; the rules stay. A new one knows nothing, and finds
	// that a service has gone and another has come meanwhile.
	s.kernel.close()
	s.reach(s.client, "10.96.0.11:80", "a", "")
	s.model = NewModel(s.model.cfg)
	s.open()
	s.put(web, all, service("new", "10.96.0.12"), backends("new", "10.244.2.2@n2"))
	s.reach(s.client, "10.96.0.12:80", "c", "")
	s.dropped(s.client, "10.96.0.11:80")
	s.refused(s.client, "192.168.1.1:30080")
	if names, _ := s.ask(s.client, "tcp", "10.96.0.10:80", 10); names[first] != 10 {
		t.Errorf("after a restart %v answered, want %q as before", names, first)
	}
	if _, err := c.Write([]byte("still there?")); err != nil {
		t.Error(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(3 * time.Second))
	buf := make([]byte, len("still there?"))
	if _, err := io.ReadFull(c, buf); err != nil || string(buf) != "still there?" {
		t.Errorf("old connection: got %q, %v, want an echo", buf, err)
	}
	s.sound()
}

// sound checks that the kernel holds exactly what the model says (P3), as far
// as names and keys go.
func (s *site) sound() {
	s.t.Helper()
	for i, c := range s.model.Full().Tables {
		table := tableOf(families[i])
		chains, err := s.kernel.Conn().Chains(table)
		if err != nil {
			s.t.Fatal(err)
		}
		slices.Sort(chains)
		var want []string
		for _, ch := range c.Chains {
			want = append(want, ch.Name)
		}
		slices.Sort(want)
		if !slices.Equal(chains, want) {
			s.t.Errorf("chains of %s: got %q, want %q", table, chains, want)
		}
		for set := range setCount {
			keys, err := s.kernel.Conn().Keys(table, set.String())
			if err != nil {
				s.t.Fatal(err)
			}
			got := map[string]bool{}
			for _, k := range keys {
				got[string(k)] = true
			}
			n := 0
			for _, e := range c.Add {
				if e.Set == sets[i][set] {
					n++
					key := e.Key
					if e.Set.Interval {
						key = key[:len(key)/2] // the first one of the range
					}
					if !got[key] {
						s.t.Errorf("set %s of %s lacks %s", set, table, e)
					}
				}
			}
			if n != len(keys) {
				s.t.Errorf("set %s of %s has %d elements, want %d", set, table, len(keys), n)
			}
		}
	}
}

// TestLargeTableThatIsNewComesInParts has more elements than one transaction takes.
func TestLargeTableThatIsNewComesInParts(t *testing.T) {
	s := newSite(t)
	s.serve()
	many(s.model, 2000)
	s.model.SetService(service("web", "10.111.0.10", nodePort, sticking))
	s.model.SetSlice(backends("web", "10.244.1.2@n1"))
	s.model.Anew()
	s.model.Commit()
	full := s.model.Full()
	if n := len(full.Tables[0].Add); n <= mostAtOnce {
		t.Fatalf("there are %d elements, want more than %d", n, mostAtOnce)
	}
	s.applyStep(full)
	s.reach(s.client, "10.111.0.10:80", "a", "")
	s.reach(s.client, "192.168.1.1:30080", "a", "")
	s.sound()
	s.put(backends("web", "10.244.2.2@n2"))
	s.reach(s.client, "10.111.0.10:80", "c", "")
	s.sound()
}

func TestTableThatIsNotAsExpectedIsRebuilt(t *testing.T) {
	s := newSite(t)
	s.serve()
	var b nft.Batch
	table := tableOf(nft.IPv4)
	b.AddTable(table)
	b.AddChain(table, "services", &nft.Hook{Type: "filter", Num: unix.NF_INET_FORWARD})
	b.AddRule(table, "services", nft.Do(nft.Drop, ""))
	b.AddSet(table, nft.Set{Name: "service-ips", Key: []nft.Field{nft.Port}})
	b.AddSet(table, nft.Set{Name: "stray", Key: []nft.Field{nft.Port}})
	if err := s.kernel.Conn().Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	s.put(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	s.reach(s.client, "10.96.0.10:80", "a", "")
	s.sound()
}

func TestForeignTablesStayAndOursGoWithoutTrace(t *testing.T) {
	s := newSite(t)
	foreign := nft.Table{Family: nft.IPv4, Name: "foreign"}
	var b nft.Batch
	b.AddTable(foreign)
	b.AddChain(foreign, "prerouting", &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: -101})
	b.AddRule(foreign, "prerouting", nft.Counter())
	if err := s.kernel.Conn().Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	s.put(service("web", "10.96.0.10 fd00:96::a", nodePort, sticking), backends("web", "10.244.1.2@n1"))
	s.put(backends("web"))
	tables := func() []nft.Table {
		list, err := s.kernel.Conn().Tables()
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	if got := tables(); len(got) != 3 {
		t.Errorf("tables: got %v, want ours of both families and the foreign one", got)
	}
	var removed []string
	s.n1.Must(func() (err error) {
		removed, err = Reset(t.Context())
		return err
	})
	if want := []string{"nftables table ip kemudi", "nftables table ip6 kemudi"}; !slices.Equal(removed, want) {
		t.Errorf("removed: got %q, want %q", removed, want)
	}
	if got := tables(); !slices.Equal(got, []nft.Table{foreign}) {
		t.Errorf("tables after reset: got %v, want only %v", got, foreign)
	}
	if chains, err := s.kernel.Conn().Chains(foreign); err != nil || len(chains) != 1 {
		t.Errorf("chains of the foreign table: got %v, %v, want one", chains, err)
	}
	s.n1.Must(func() (err error) {
		removed, err = Reset(t.Context())
		return err
	})
	if len(removed) > 0 {
		t.Errorf("removed the second time: got %q, want nothing", removed)
	}
}
