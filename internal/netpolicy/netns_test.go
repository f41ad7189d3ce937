package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// site is a node with two pods, and a machine beyond it that has the address of a pod of
// another node as well:
//
//	out 192.168.1.100, 10.244.2.2 --- n1 192.168.1.1 --- br0 10.244.1.1 --- a 10.244.1.2, b 10.244.1.3
//
// and the same in IPv6, with fd00:1:: and fd00:244:0:N::.
type site struct {
	t          *testing.T
	n1, out    *nettest.Host
	a, b       *nettest.Host
	cluster    *clienttest.Filled
	stop       func()
	podA, podB *corev1.Pod
	remote     *corev1.Pod
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	s := &site{t: t, n1: nettest.New(t, "n1"), out: nettest.New(t, "out"), a: nettest.New(t, "a"), b: nettest.New(t, "b")}
	s.n1.Router()
	nettest.Link(s.out, "eth0", s.n1, "eth0")
	for _, addr := range []string{"192.168.1.100/24", "fd00:1::100/64", "10.244.2.2/24", "fd00:244:0:2::2/64"} {
		s.out.Addr("eth0", addr)
	}
	s.n1.Addr("eth0", "192.168.1.1/24")
	s.n1.Addr("eth0", "fd00:1::1/64")
	s.n1.Bridge("br0")
	s.n1.Addr("br0", "10.244.1.1/24")
	s.n1.Addr("br0", "fd00:244:0:1::1/64")
	s.n1.Route("10.244.2.0/24", "192.168.1.100")
	s.n1.Route("fd00:244:0:2::/64", "fd00:1::100")
	s.out.Route("10.244.1.0/24", "192.168.1.1")
	s.out.Route("fd00:244:0:1::/64", "fd00:1::1")
	s.podA, s.podB, s.remote = s.pod(s.a, "a", 2), s.pod(s.b, "b", 3), podOf("far", "n2", "10.244.2.2", "fd00:244:0:2::2")
	s.remote.Labels = nil
	s.cluster = clienttest.NewFilled(s.podA, s.podB, s.remote, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	return s
}

// pod makes a pod as the product's network does, with the node as the way even to the
// neighbours. It answers on some ports.
func (s *site) pod(h *nettest.Host, name string, number int) *corev1.Pod {
	port := fmt.Sprintf("veth%d", number)
	nettest.Link(s.n1, port, h, "eth0")
	s.n1.Port("br0", port)
	ip4, ip6 := fmt.Sprintf("10.244.1.%d", number), fmt.Sprintf("fd00:244:0:1::%d", number)
	h.Addr("eth0", ip4+"/24")
	h.Addr("eth0", ip6+"/64")
	for _, r := range [][2]string{
		{"0.0.0.0/0", "10.244.1.1"}, {"10.244.1.128/25", "10.244.1.1"}, {"10.244.1.0/25", "10.244.1.1"},
		{"::/0", "fd00:244:0:1::1"}, {"fd00:244:0:1:8000::/65", "fd00:244:0:1::1"}, {"fd00:244:0:1::/65", "fd00:244:0:1::1"},
	} {
		h.Route(r[0], r[1])
	}
	for _, port := range []string{"80", "81"} {
		for _, ip := range []string{ip4, ip6} {
			h.Serve(name, "tcp", net.JoinHostPort(ip, port))
			h.Serve(name, "udp", net.JoinHostPort(ip, port))
		}
	}
	return podOf(name, "n1", ip4, ip6)
}

func podOf(name, node string, ips ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name}}}
	p.Spec.NodeName = node
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return p
}

// run runs an agent on n1 until the test ends, or stop is called.
func (s *site) run() *Agent {
	s.t.Helper()
	a, err := New(Options{NodeName: "n1", Transport: s.cluster})
	if err != nil {
		s.t.Fatal(err)
	}
	a.open = func() (k *kernel, err error) {
		err = s.n1.Do(func() error {
			k, err = openKernel()
			return err
		})
		return k, err
	}
	g := task.NewGroup(context.WithoutCancel(s.t.Context()))
	g.Go("agent", a.Run)
	stopped := false
	s.stop = func() {
		if stopped {
			return
		}
		stopped = true
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			s.t.Errorf("agent: %v", err)
		}
	}
	s.t.Cleanup(s.stop)
	return a
}

// policyOf makes a policy of YAML, for the pods with a label app.
func policyOf(t testing.TB, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	parse(t, spec, &p.Spec)
	networking.NetworkPolicies.Default(p)
	return p
}

// reaches checks that a connection is let through.
func (s *site) reaches(from *nettest.Host, network, source, addr string) {
	s.t.Helper()
	wait.Until(s.t, func() error { return try(from, network, source, addr) })
}

// try makes a connection and hears who answers.
func try(from *nettest.Host, network, source, addr string) error {
	if source != "" {
		source = net.JoinHostPort(source, "0")
	}
	c, err := from.DialFrom(network, source, addr)
	if err != nil {
		return fmt.Errorf("from %s to %s %s: %w", from.Name, network, addr, err)
	}
	defer c.Close()
	if _, _, err := nettest.AskOn(c); err != nil {
		return fmt.Errorf("from %s to %s %s: %w", from.Name, network, addr, err)
	}
	return nil
}

// misses checks that a connection is not let through, once the rules are in force.
func (s *site) misses(from *nettest.Host, network, source, addr string) {
	s.t.Helper()
	if s.passes(from, network, source, addr) {
		s.t.Errorf("from %s (%s) to %s %s: there is an answer, want none", from.Name, source, network, addr)
	}
}

// passes reports whether there is an answer within a moment.
func (s *site) passes(from *nettest.Host, network, source, addr string) bool {
	answered := false
	err := from.Do(func() error {
		d := net.Dialer{Timeout: 300 * time.Millisecond}
		if source != "" && network == "tcp" {
			d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
		} else if source != "" {
			d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(source)}
		}
		c, err := d.Dial(network, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		if network == "udp" {
			_, _ = c.Write([]byte("hello"))
		}
		_, err = c.Read(make([]byte, 64))
		answered = err == nil
		return nil
	})
	return answered && err == nil
}

// holds waits until n1 has our tables, or has not.
func (s *site) holds(want bool) {
	s.t.Helper()
	wait.Until(s.t, func() error {
		var has bool
		err := s.n1.Do(func() error {
			c, err := nft.Open()
			if err != nil {
				return err
			}
			defer c.Close()
			has, err = c.Has(tables()[0])
			return err
		})
		if err == nil && has != want {
			err = fmt.Errorf("there is a table: %t, want %t", has, want)
		}
		return err
	})
}

func TestPacketsGoAsPoliciesSay(t *testing.T) {
	s := newSite(t)
	s.run()
	s.cluster.Put(policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}], ports: [{port: 80}, {protocol: UDP, port: 80}]}]}`))
	s.holds(true)
	for _, f := range []struct{ a, b, far, out string }{
		{"10.244.1.2", "10.244.1.3", "10.244.2.2", "192.168.1.100"}, {"fd00:244:0:1::2", "fd00:244:0:1::3", "fd00:244:0:2::2", "fd00:1::100"},
	} {
		s.out.Serve("out", "tcp", net.JoinHostPort(f.out, "80"))
		b80, b81 := net.JoinHostPort(f.b, "80"), net.JoinHostPort(f.b, "81")
		for _, network := range []string{"tcp", "udp"} {
			trace.Proves(t, "NETPOL-004", "NETPOL-012", "NETPOL-021")
			s.reaches(s.a, network, "", b80)
			s.misses(s.a, network, "", b81)
			s.misses(s.out, network, f.far, b80)
			s.misses(s.out, network, f.out, b80)
			trace.Proves(t, "NETPOL-005")
			s.reaches(s.b, network, "", net.JoinHostPort(f.a, "81"))
			s.reaches(s.out, network, f.far, net.JoinHostPort(f.a, "81"))
			s.reaches(s.n1, network, "", b81) // as a probe does
			s.reaches(s.b, network, "", b81)  // a pod to itself
		}
		s.reaches(s.b, "tcp", "", net.JoinHostPort(f.out, "80")) // what it begins, with the replies
	}
	// What comes and goes of peers is seen.
	s.remote = s.remote.DeepCopy()
	s.remote.Labels = map[string]string{"app": "a"}
	s.cluster.Put(s.remote)
	s.reaches(s.out, "tcp", "10.244.2.2", "10.244.1.3:80")
	s.cluster.Remove(s.podA)
	wait.Until(t, func() error {
		if s.passes(s.a, "tcp", "", "10.244.1.3:80") {
			return errors.New("a pod that is gone is let through")
		}
		return nil
	})
}

func TestWhatPodsSendIsHeldBack(t *testing.T) {
	s := newSite(t)
	s.run()
	s.out.Serve("out", "tcp", "192.168.1.100:80")
	s.n1.Serve("node", "tcp", "10.244.1.1:53")
	s.translate("10.96.0.10", "10.244.1.3", 80)
	s.cluster.Put(policyOf(t, "a", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: b}}}], ports: [{port: 80}]}]}`))
	s.holds(true)
	trace.Proves(t, "NETPOL-013", "NETPOL-033")
	s.reaches(s.a, "tcp", "", "10.244.1.3:80")
	s.misses(s.a, "tcp", "", "10.244.1.3:81")
	s.misses(s.a, "tcp", "", "192.168.1.100:80")
	s.reaches(s.a, "tcp", "", "10.96.0.10:80") // a service, judged by where it leads to
	s.reaches(s.a, "tcp", "", "10.244.1.1:53") // its own node
	s.reaches(s.out, "tcp", "10.244.2.2", "10.244.1.2:80")
	s.cluster.Put(policyOf(t, "a2", `{podSelector: {matchLabels: {app: a}}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 192.168.1.0/24, except: [192.168.1.1/32]}}]}]}`))
	trace.Proves(t, "NETPOL-006", "NETPOL-026")
	s.reaches(s.a, "tcp", "", "192.168.1.100:80")
}

// translate makes the node send connections to an address and TCP port to another address, as
// services do.
func (s *site) translate(vip, to string, port uint16) {
	s.t.Helper()
	s.n1.Must(func() error {
		c, err := nft.Open()
		if err != nil {
			return err
		}
		defer c.Close()
		var b nft.Batch
		t := nft.Table{Family: nft.IPv4, Name: "vip"}
		b.AddTable(t)
		b.AddChain(t, "pre", &nft.Hook{Type: "nat", Num: unix.NF_INET_PRE_ROUTING, Priority: -100})
		b.AddRule(t, "pre", nft.DestinationAddr(nft.IPv4, nft.R0), nft.Equal(nft.R0, net.ParseIP(vip).To4()),
			nft.Load(nft.R0, net.ParseIP(to).To4()), nft.Load(nft.R0+1, nft.Key(nil).Port(port)[:2]), nft.DNAT(nft.IPv4, nft.R0, nft.R0+1))
		return c.Commit(s.t.Context(), &b)
	})
}

func TestConnectionsThatAChangeForbidsEnd(t *testing.T) {
	s := newSite(t)
	s.run()
	s.cluster.Put(policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {}}]}]}`))
	s.holds(true)
	open := func(from *nettest.Host, network, source string) net.Conn {
		t.Helper()
		var c net.Conn
		wait.Until(t, func() (err error) {
			if c, err = from.DialFrom(network, net.JoinHostPort(source, "0"), "10.244.1.3:80"); err == nil {
				_, _, err = nettest.AskOn(c)
			}
			return err
		})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	tcpA, udpA, tcpFar := open(s.a, "tcp", "10.244.1.2"), open(s.a, "udp", "10.244.1.2"), open(s.out, "tcp", "10.244.2.2")
	s.cluster.Put(policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchExpressions: [{key: app, operator: DoesNotExist}]}}]}]}`))
	wait.Until(t, func() error { return goesOn(tcpA, false) })
	wait.Until(t, func() error { return goesOn(udpA, false) })
	wait.Until(t, func() error { return goesOn(tcpFar, true) })
	// A peer that is one no more: the connection ends, although the policy has not changed.
	s.remote = s.remote.DeepCopy()
	s.remote.Labels = map[string]string{"app": "x"}
	s.cluster.Put(s.remote)
	wait.Until(t, func() error { return goesOn(tcpFar, false) })
}

// goesOn checks that a connection answers, or does not.
func goesOn(c net.Conn, want bool) error {
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	_, err := c.Write([]byte("x"))
	if err == nil {
		_, err = io.ReadAtLeast(c, make([]byte, 64), 1)
	}
	if got := err == nil; got != want {
		return fmt.Errorf("the connection to %s goes on: %t (%w), want %t", c.RemoteAddr(), got, err, want)
	}
	return nil
}

func TestRulesHoldWithoutTheProgramAndGoWithTheLastPolicy(t *testing.T) {
	s := newSite(t)
	s.run()
	s.holds(false)
	p := policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}}`)
	s.cluster.Put(p)
	s.holds(true)
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
	s.stop()
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
	s.run()
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
	s.stop()
	s.cluster.Remove(p) // while nobody looks
	s.run()
	s.holds(false)
	s.reaches(s.a, "tcp", "", "10.244.1.3:80")
	s.cluster.Put(p)
	s.holds(true)
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
	s.cluster.Remove(p)
	s.holds(false)
	s.reaches(s.a, "tcp", "", "10.244.1.3:80")
}

func TestAPodIsIsolatedBeforeItBegins(t *testing.T) {
	s := newSite(t)
	agent := s.run()
	s.cluster.Put(policyOf(t, "new", `{podSelector: {matchLabels: {app: new}}}`))
	s.holds(true)
	s.cluster.Remove(s.podB)
	s.reaches(s.a, "tcp", "", "10.244.1.3:80")
	fresh := podOf("new", "n1") // the API knows of no address yet
	s.cluster.Put(fresh)
	if err := agent.Connected(t.Context(), fresh, addrsOf("10.244.1.3", "fd00:244:0:1::3")); err != nil {
		t.Fatal(err)
	}
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
	s.misses(s.a, "tcp", "", "[fd00:244:0:1::3]:80")
}

// TestUpdatesLeaveNoGap changes policies and pods, and writes all rules anew, while
// connections are tried.
func TestUpdatesLeaveNoGap(t *testing.T) {
	s := newSite(t)
	s.run()
	s.cluster.Put(policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{port: 80}]}]}`))
	s.holds(true)
	ctx, cancel := context.WithCancel(t.Context())
	g := task.NewGroup(ctx)
	tried := 0
	g.Go("allowed", func(ctx context.Context) error {
		for ; ctx.Err() == nil; tried++ {
			if err := try(s.a, "tcp", "", "10.244.1.3:80"); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go("forbidden", func(ctx context.Context) error {
		for ctx.Err() == nil {
			if s.passes(s.a, "udp", "", "10.244.1.3:80") {
				return errors.New("what is forbidden passes")
			}
		}
		return nil
	})
	for i := range 60 {
		s.cluster.Put(policyOf(t, "other", fmt.Sprintf(`{podSelector: {}, ingress: [{ports: [{port: %d}]}]}`, 1000+i)))
		far := podOf(fmt.Sprint("peer", i), "n2", fmt.Sprintf("10.244.3.%d", i))
		s.cluster.Put(far)
		if i%20 == 10 {
			s.stop()
			s.run() // which writes everything
		}
		if err := task.Sleep(ctx, 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := g.Wait(); err != nil || tried == 0 {
		t.Errorf("after %d connections: %v", tried, err)
	}
}

func TestRulesComeBack(t *testing.T) {
	s := newSite(t)
	s.run()
	s.cluster.Put(policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}}`))
	s.holds(true)
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
	s.n1.Must(func() error {
		_, err := Reset(t.Context())
		return err
	})
	s.holds(true)
	s.misses(s.a, "tcp", "", "10.244.1.3:80")
}

// TestSCTPIsJudgedByItsPorts sends the packets that begin associations, as the kernel may
// have no sockets for them.
func TestSCTPIsJudgedByItsPorts(t *testing.T) {
	s := newSite(t)
	s.run()
	s.cluster.Put(policyOf(t, "b", `{podSelector: {matchLabels: {app: b}}, ingress: [{ports: [{protocol: SCTP, port: 7777}]}]}`))
	s.holds(true)
	var c net.PacketConn
	s.b.Must(func() (err error) {
		c, err = net.ListenPacket("ip4:132", "10.244.1.3")
		return err
	})
	defer c.Close()
	trace.Proves(t, "NETPOL-037", "NETPOL-038")
	for _, port := range []uint16{7778, 7777} {
		s.a.Must(func() error { return nettest.SendInit("10.244.1.3", port) })
	}
	_ = c.SetReadDeadline(time.Now().Add(wait.Patience))
	buf := make([]byte, 1500)
	n, _, err := c.ReadFrom(buf)
	if err != nil || n < 4 {
		t.Fatalf("got %d bytes, %v, want an association to be begun", n, err)
	}
	if port := uint16(buf[2])<<8 | uint16(buf[3]); port != 7777 {
		t.Errorf("got a packet to port %d, want none but to 7777", port)
	}
}

func TestNamesOfChainsAndSetsAreInTheNotes(t *testing.T) {
	long := in{about: strings.Repeat("x", 500)}
	if n := len(long.Note()); n > longestNote {
		t.Errorf("got a note of %d bytes, want at most %d", n, longestNote)
	}
}
