package proxy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

func TestSessionAffinityIsSwitchedLive(t *testing.T) {
	trace.Proves(t, "C-227", "C-231", "C-232", "SVC-048", "SVC-062")
	s := newSite(t)
	s.serve()
	all := backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2")
	s.put(service("web", "10.96.0.10", nodePort), all)
	sameFor := func(addrs ...string) {
		t.Helper()
		for _, addr := range addrs { // not over UDP: a flow of the time before may have the same ports
			if names, _ := s.ask(s.client, "tcp", addr, 30); len(names) != 1 {
				t.Errorf("30 connections to %s were answered by %v, want one pod", addr, names)
			}
		}
	}
	for range 2 {
		s.reach(s.client, "10.96.0.10:80", "abc", "")
		s.reach(s.client, "192.168.1.1:30080", "abc", "")
		s.put(service("web", "10.96.0.10", nodePort, sticking))
		sameFor("10.96.0.10:80", "192.168.1.1:30080")
		s.put(service("web", "10.96.0.10", sticking)) // another type
		sameFor("10.96.0.10:80")
		s.put(service("web", "10.96.0.10"))
		s.reach(s.client, "10.96.0.10:80", "abc", "")
		s.put(service("web", "10.96.0.10", nodePort))
	}
	s.sound()
}

// external is a service that is only another name.
func external(svc *corev1.Service) {
	svc.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
}

func TestTypeOfAServiceChangesToAndFro(t *testing.T) {
	trace.Proves(t, "C-222", "C-223", "SVC-031", "SVC-107")
	s := newSite(t)
	s.serve()
	const vip, node = "10.96.0.10:80", "192.168.1.1:30080"
	named := service("web", "10.96.0.10", external)
	s.put(named, backends("web", "10.244.1.2@n1"))
	s.dropped(s.client, vip)
	for range 2 {
		s.put(service("web", "10.96.0.10"))
		s.reach(s.client, vip, "a", "")
		s.refused(s.client, node)
		s.put(named)
		s.dropped(s.client, vip)
		s.put(service("web", "10.96.0.10", nodePort))
		s.reach(s.client, vip, "a", "")
		s.reach(s.client, node, "a", "")
		s.put(service("web", "10.96.0.10"))
		s.reach(s.client, vip, "a", "")
		s.refused(s.client, node)
		s.put(service("web", "10.96.0.10", nodePort))
		s.reach(s.client, node, "a", "")
		s.put(named)
		s.dropped(s.client, vip)
		s.refused(s.client, node)
	}
	s.sound()
}

// handMade is a slice as a user writes it: its own name, any ports, any addresses.
func handMade(name, service string, ports map[string]int32, addrs ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
	}}
	for port, number := range ports {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(port), Port: ptr.To(number), Protocol: ptr.To(corev1.ProtocolTCP)})
	}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func TestHandMadeSlicesWithSeveralPorts(t *testing.T) {
	s := newSite(t)
	for _, port := range []int{8080, 8090, 9000} {
		for name, h := range map[string]*nettest.Host{"a": s.a, "b": s.b, "client": s.client} {
			h.Serve(fmt.Sprintf("%s-%d", name, port), "tcp", fmt.Sprintf(":%d", port))
		}
	}
	expect := func(addr string, want ...string) {
		t.Helper()
		names, _ := s.ask(s.c, "tcp", addr, 40)
		for _, w := range want {
			if names[w] == 0 {
				t.Errorf("%s: answered %v, want all of %q", addr, names, want)
			}
		}
		if len(names) != len(want) {
			t.Errorf("%s: answered %v, want only %q", addr, names, want)
		}
	}
	svc := service("web", "10.96.0.10", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "one", Port: 81, Protocol: corev1.ProtocolTCP}, {Name: "two", Port: 82, Protocol: corev1.ProtocolTCP}}
	})
	tcpRefused := func(addr string) {
		t.Helper()
		if name, _, err := s.c.Ask("tcp", addr); err == nil {
			t.Errorf("%s: %s answered, want it refused", addr, name)
		}
	}
	// One address, a slice for each port.
	s.put(svc, handMade("x", "web", map[string]int32{"one": 8080}, "10.244.1.2"), handMade("y", "web", map[string]int32{"two": 8090}, "10.244.1.2"))
	trace.Proves(t, "C-202", "SVC-019", "SVC-027")
	expect("10.96.0.10:81", "a-8080")
	expect("10.96.0.10:82", "a-8090")
	// Two addresses, each with the port under a number of its own.
	s.put(handMade("x", "web", map[string]int32{"one": 8080}, "10.244.1.2"), handMade("y", "web", map[string]int32{"one": 8090, "two": 9000}, "10.244.1.3"))
	trace.Proves(t, "C-235", "SVC-019")
	expect("10.96.0.10:81", "a-8080", "b-8090")
	expect("10.96.0.10:82", "b-9000")
	// The new version of a pod serves elsewhere: the service stays as it is.
	s.put(handMade("x", "web", map[string]int32{"one": 9000, "two": 9000}, "10.244.1.2"))
	trace.Proves(t, "C-235", "SVC-014")
	expect("10.96.0.10:81", "a-9000", "b-8090")
	expect("10.96.0.10:82", "a-9000", "b-9000")
	s.model.DeleteSlice(handMade("y", "web", nil))
	s.put()
	trace.Proves(t, "C-235")
	expect("10.96.0.10:81", "a-9000")
	s.put(handMade("x", "web", map[string]int32{"one": 8080}, "10.244.1.2"))
	tcpRefused("10.96.0.10:82")
	// What serves is no pod at all.
	s.client.Route("10.244.0.0/16", "192.168.1.1") // the way back by the node that forwards
	s.put(handMade("x", "web", map[string]int32{"one": 8080}, "192.168.1.100"))
	trace.Proves(t, "SVC-028")
	expect("10.96.0.10:81", "client-8080")
	s.model.DeleteSlice(handMade("x", "web", nil))
	s.put()
	trace.Proves(t, "C-235")
	tcpRefused("10.96.0.10:81")
	s.sound()
}

func TestTerminatingEndpointsServeWhenThereAreNoOthers(t *testing.T) {
	trace.Proves(t, "KEP-1669")
	s := newSite(t)
	s.serve()
	slice := func(conditions map[string]string) *discoveryv1.EndpointSlice {
		b := backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2")
		for i, name := range []string{"a", "b", "c"} {
			switch conditions[name] {
			case "ending":
				b.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
			case "gone":
				b.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false), Terminating: ptr.To(true)}
			case "unready":
				b.Endpoints[i].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}
			}
		}
		return b
	}
	local := service("web", "10.96.0.10", nodePort, func(svc *corev1.Service) { svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal })
	s.client.Route("10.244.0.0/16", "192.168.1.1")
	s.put(local, slice(map[string]string{"a": "ending"}))
	s.reach(s.b, "10.96.0.10:80", "bc", "")
	s.reach(s.client, "192.168.1.1:30080", "b", "192.168.1.100")
	s.put(slice(map[string]string{"a": "ending", "b": "unready"}))
	s.reach(s.b, "10.96.0.10:80", "c", "")
	s.reach(s.client, "192.168.1.1:30080", "a", "192.168.1.100") // the node's own, rather than none
	s.put(slice(map[string]string{"a": "ending", "b": "gone", "c": "gone"}))
	s.reach(s.b, "10.96.0.10:80", "a", "")
	s.put(slice(map[string]string{"a": "gone", "b": "gone", "c": "gone"}))
	s.refused(s.b, "10.96.0.10:80")
	s.refused(s.client, "192.168.1.1:30080")
}

// TestOneProtocolOfAPortCanGo updates a service with one port in both
// protocols to the one and to the other.
func TestOneProtocolOfAPortCanGo(t *testing.T) {
	trace.Proves(t, "C-234")
	s := newSite(t)
	s.serve()
	only := func(i int) func(*corev1.Service) {
		return func(svc *corev1.Service) { svc.Spec.Ports = svc.Spec.Ports[i : i+1] }
	}
	answers := func(network, addr string) bool {
		name, _, err := s.client.Ask(network, addr)
		return err == nil && name == "a"
	}
	s.put(service("web", "10.96.0.10", nodePort), backends("web", "10.244.1.2@n1"))
	for _, c := range []struct {
		change   func(*corev1.Service)
		tcp, udp bool
	}{
		{func(*corev1.Service) {}, true, true}, {only(0), true, false}, {only(1), false, true}, {func(*corev1.Service) {}, true, true},
	} {
		s.put(service("web", "10.96.0.10", nodePort, c.change))
		for _, addr := range []string{"10.96.0.10:80", "192.168.1.1:30080"} {
			if tcp, udp := answers("tcp", addr), answers("udp", addr); tcp != c.tcp || udp != c.udp {
				t.Errorf("%s: got answers over TCP %v and UDP %v, want %v and %v", addr, tcp, udp, c.tcp, c.udp)
			}
		}
	}
}

// segment is a TCP segment without data, with its checksum.
func segment(from, to netip.AddrPort, flags byte) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b, from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	b[12], b[13] = 5<<4, flags
	pseudo := append(append(from.Addr().AsSlice(), to.Addr().AsSlice()...), 0, unix.IPPROTO_TCP, 0, byte(len(b)))
	var sum uint32
	for i, v := range append(pseudo, b...) {
		sum += uint32(v) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}

func TestInvalidPacketsDoNotPassUntranslated(t *testing.T) {
	s := newSite(t)
	s.serve()
	s.put(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1"))
	raw := func(h *nettest.Host, addr string) (c net.PacketConn) {
		h.Must(func() (err error) {
			c, err = net.ListenPacket("ip4:tcp", addr)
			return err
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	pod, client := raw(s.a, "10.244.1.2"), raw(s.client, "192.168.1.100")
	const reset = 4
	from, to := netip.MustParseAddrPort("10.244.1.2:8080"), netip.MustParseAddrPort("192.168.1.100:4444")
	if _, err := pod.WriteTo(segment(from, to, reset), &net.IPAddr{IP: net.IP(to.Addr().AsSlice())}); err != nil {
		t.Fatal(err)
	}
	s.ask(s.client, "tcp", "10.96.0.10:80", 1) // whose packets come behind
	buf := make([]byte, 1500)
	for answered := false; !answered; {
		n, who, err := client.ReadFrom(buf)
		if err != nil {
			t.Fatal(err)
		}
		answered = who.String() == "10.96.0.10"
		if n >= 20 && who.String() == "10.244.1.2" {
			t.Errorf("the client got a segment %x from %s, want none from there", buf[:n], who)
		}
	}
}

func TestServicesOfAnotherProxyAreLeftToIt(t *testing.T) {
	s := newSite(t)
	s.serve()
	theirs := service("theirs", "10.96.0.77", func(svc *corev1.Service) {
		svc.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": "theirs"}
	})
	s.put(theirs)
	var b nft.Batch
	other := nft.Table{Family: nft.IPv4, Name: "theirs"}
	b.AddTable(other)
	b.AddChain(other, "prerouting", &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: priorityDNAT + 1})
	rule := append([]nft.Expr{nft.DestinationAddr(nft.IPv4, nft.R0)}, nft.InPrefix(nft.R0, netip.MustParsePrefix("10.96.0.77/32"))...)
	b.AddRule(other, "prerouting", append(rule, nft.Load(nft.R0, nft.Key(nil).Addr(netip.MustParseAddr("10.244.1.2"))), nft.Load(nft.R0+1, nft.Key(nil).Port(8080)[:2]), nft.DNAT(nft.IPv4, nft.R0, nft.R0+1))...)
	if err := s.kernel.Conn().Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	s.reach(s.client, "10.96.0.77:80", "a", "")
	s.put(service("theirs", "10.96.0.77")) // ours from now on, and without endpoints
	s.refused(s.client, "10.96.0.77:81")
	s.put(theirs)
	s.reach(s.client, "10.96.0.77:80", "a", "")
	s.sound()
}

// TestFlowsThatCouldNotBeEndedAreTriedAgain refuses the first time.
func TestFlowsThatCouldNotBeEndedAreTriedAgain(t *testing.T) {
	s := newSite(t)
	s.serve()
	c := newCluster(service("web", "10.96.0.10", nodePort), backends("web", "10.244.1.2@n1"))
	refused, calls := make(chan struct{}), 0
	p := s.run(Options{Transport: c}, func(p *Proxy) {
		end := p.end
		p.end = func(flows []flow, f nft.Family) (int, error) {
			if calls++; calls == 2 { // the first is that of the start
				close(refused)
				return 0, errors.New("not now")
			}
			return end(flows, f)
		}
	})
	soon(t, "the rules are in force", p.Synced)
	var conn net.Conn
	s.client.Must(func() (err error) {
		conn, err = net.Dial("udp", "192.168.1.1:30080")
		return err
	})
	defer conn.Close()
	if name, _, err := nettest.AskOn(conn); err != nil || name != "a" {
		t.Fatalf("got %q, %v, want a", name, err)
	}
	c.Put(backends("web", "10.244.1.3@n1"))
	<-refused
	soon(t, "the flow goes to b", func() bool {
		name, _, err := nettest.AskOn(conn)
		return err == nil && name == "b"
	})
}

// TestAssociationsOfSCTPAreLedToEndpoints sends what begins them to a cluster IP, a node port and a balancer's address.
func TestAssociationsOfSCTPAreLedToEndpoints(t *testing.T) {
	s := newSite(t)
	svc := service("web", "10.96.0.10", balanced, func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "s", Port: 80, NodePort: 30080, Protocol: corev1.ProtocolSCTP}}
		svc.Status.LoadBalancer.Ingress[0].IP = "198.51.100.7"
	})
	slice := backends("web", "10.244.1.2@n1")
	slice.Ports = []discoveryv1.EndpointPort{{Name: ptr.To("s"), Port: ptr.To[int32](9999), Protocol: ptr.To(corev1.ProtocolSCTP)}}
	s.put(svc, slice)
	var c net.PacketConn
	s.a.Must(func() (err error) {
		c, err = net.ListenPacket("ip4:132", "10.244.1.2")
		return err
	})
	defer c.Close()
	buf := make([]byte, 1500)
	for _, at := range []struct {
		addr string
		port uint16
	}{{"10.96.0.10", 80}, {"192.168.1.1", 30080}, {"198.51.100.7", 80}} {
		s.client.Must(func() error { return nettest.SendInit(at.addr, at.port) })
		_ = c.SetReadDeadline(time.Now().Add(wait.Patience))
		n, from, err := c.ReadFrom(buf)
		if err != nil || n < 4 {
			t.Fatalf("%v: got %d bytes, %v, want an association to be begun", at, n, err)
		}
		if port := uint16(buf[2])<<8 | uint16(buf[3]); port != 9999 {
			t.Errorf("%v: got a packet to port %d from %s, want 9999", at, port, from)
		}
	}
}

// TestServicesWithoutEndpointsOnTheNodeAreCounted has ports that must stay on the node, and some that need not.
func TestServicesWithoutEndpointsOnTheNodeAreCounted(t *testing.T) {
	m := NewModel(Config{NodeName: "n1"})
	local := func(svc *corev1.Service) {
		svc.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	outside := func(svc *corev1.Service) {
		nodePort(svc)
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	m.SetService(service("both", "10.96.0.10 fd00:96::a", local, outside))
	m.SetService(service("inner", "10.96.0.11", local))
	m.SetService(service("any", "10.96.0.12", nodePort))
	m.SetService(service("empty", "10.96.0.13", local))
	for _, name := range []string{"both", "inner", "any"} {
		m.SetSlice(backends(name, "10.244.2.2@n2"))
	}
	m.Commit()
	if want := (away{internal: 4, external: 2}); m.away[0] != want || m.away[1] != (away{}) {
		t.Errorf("got %+v, want %+v in IPv4 alone", m.away, want)
	}
	m.SetSlice(backends("both", "10.244.2.2@n2", "10.244.1.2@n1"))
	m.DeleteService("default", "inner")
	m.Commit()
	if m.away != [2]away{} {
		t.Errorf("with an endpoint here: got %+v, want none", m.away)
	}
}
