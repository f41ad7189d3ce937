//go:build !race

package worker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/announce/bgp"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/router"
	"github.com/kemudi/kemudi/test/stuck"
	"github.com/kemudi/kemudi/test/wait"
)

// announcerEnv names the node that a child process of the test is, the family, and the peers.
const announcerEnv = "KEMUDI_TEST_ANNOUNCER"

// told prints events.
type told struct{ log *slog.Logger }

func (t told) Event(obj resource.Object, kind, reason, message string) {
	t.log.Info("event", "about", obj.GetName(), "kind", kind, "reason", reason, "message", message)
}

// readyNode is a node of the test's cluster.
func readyNode(name string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	return n
}

// TestChildAnnouncesAnAddress is a node's service proxy with the routes that it announces. It does to its API what it
// reads, and ends with that.
func TestChildAnnouncesAnAddress(t *testing.T) {
	words := strings.Fields(os.Getenv(announcerEnv))
	if len(words) == 0 {
		t.Skip("only as the child of another test")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	peers, err := bgp.ParsePeers(words[2:])
	if err != nil {
		t.Fatal(err)
	}
	family := corev1.IPFamily(words[1])
	objects := balanced(family)
	svc, slice := objects[0].(*corev1.Service), objects[1].(*discoveryv1.EndpointSlice)
	svc.Status.LoadBalancer.Ingress[0].IP = outside[family]
	nodes := map[string]*corev1.Node{"a": readyNode("a"), "b": readyNode("b")}
	api := clienttest.NewFilled(append(objects, nodes["a"], nodes["b"])...)
	g := task.NewGroup(t.Context())
	r := newRoutes(g, words[0], api, peers)
	r.events, r.log = told{log}, log
	p, err := proxy.New(proxy.Options{Config: proxy.Config{NodeName: words[0]}, Transport: api, Log: log, Services: r.seen, Served: &r.served})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g.Go("proxy", p.Run)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		word, name, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "cordon", "uncordon", "ready", "unready":
			n := nodes[name].DeepCopy()
			if nodes[name] = n; word == "cordon" || word == "uncordon" {
				n.Spec.Unschedulable = word == "cordon"
			} else if n.Status.Conditions[0].Status = corev1.ConditionFalse; word == "ready" {
				n.Status.Conditions[0].Status = corev1.ConditionTrue
			}
			api.Put(n)
		case "local": // with an endpoint at this node, if any
			slice = slice.DeepCopy()
			slice.Endpoints[0].NodeName, slice.Endpoints[0].Conditions.Ready = ptr.To(name), ptr.To(name != "")
			svc = svc.DeepCopy()
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			api.Put(slice)
			api.Put(svc)
		case "remove":
			api.Remove(svc)
		case "make":
			slice = slice.DeepCopy()
			slice.Endpoints[0].NodeName, slice.Endpoints[0].Conditions.Ready = nil, ptr.To(true)
			api.Put(slice)
			svc = svc.DeepCopy()
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
			api.Put(svc)
		}
	}
	g.Cancel(context.Canceled)
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// outside are addresses of no link.
var outside = map[corev1.IPFamily]string{corev1.IPv4Protocol: "192.0.2.100", corev1.IPv6Protocol: "2001:db8::100"}

// annunciation is a cluster of two nodes with a router between them and a client.
type annunciation struct {
	*testing.T
	family corev1.IPFamily
	hosts  map[string]*nettest.Host
	router *router.Router
}

// AS of the test's nodes, and its router's.
const nodesAS, routersAS = 64513, 64512

func newAnnunciation(t *testing.T, family corev1.IPFamily) *annunciation {
	t.Helper()
	a := &annunciation{T: t, family: family, hosts: map[string]*nettest.Host{}}
	middle := nettest.New(t, "switch")
	for name, number := range map[string]int{"a": 1, "b": 2, "backend": 9, "router": 254} {
		h := nettest.New(t, name)
		h.Router()
		nettest.Link(h, "eth0", middle, name)
		h.Addr("eth0", a.at(number))
		a.hosts[name] = h
	}
	middle.Bridge("br0", "a", "b", "backend", "router")
	for _, hash := range []string{"net/ipv4/fib_multipath_hash_policy", "net/ipv6/fib_multipath_hash_policy"} {
		a.hosts["router"].Sysctl(hash, "1") // by ports, too
	}
	client := nettest.New(t, "client")
	a.hosts["client"] = client
	nettest.Link(client, "eth0", a.hosts["router"], "eth1")
	far := map[corev1.IPFamily][4]string{
		corev1.IPv4Protocol: {"10.8.0.1", "10.8.0.2", "/24", "0.0.0.0/0"}, corev1.IPv6Protocol: {"fd08::1", "fd08::2", "/64", "::/0"},
	}[family]
	a.hosts["router"].Addr("eth1", far[0]+far[2])
	client.Addr("eth0", far[1]+far[2])
	client.Route(far[3], far[0])
	for _, name := range []string{"a", "b", "backend"} {
		a.hosts[name].Route(far[3], a.ip(254))
	}
	a.hosts["backend"].Serve("backend", "tcp", "[::]:8080")
	a.router = router.Start(t, a.hosts["router"], router.Options{AS: routersAS, ID: "10.9.0.254", Port: 179, Listen: []string{a.ip(254)}})
	for _, number := range []int{1, 2} {
		a.accept(number)
	}
	return a
}

func (a *annunciation) at(number int) string { return fmt.Sprintf(places[a.family].network, number) }

func (a *annunciation) ip(number int) string { return strings.Split(a.at(number), "/")[0] }

func (a *annunciation) accept(number int) {
	a.router.Accept(router.Neighbour{Addr: a.ip(number), AS: nodesAS})
}

// nodeProcess is a node's process.
type nodeProcess struct {
	*exec.Cmd
	in  io.WriteCloser
	log string
}

func (a *annunciation) start(node string) *nodeProcess {
	a.Helper()
	p := &nodeProcess{Cmd: exec.CommandContext(a.Context(), os.Args[0], "-test.run=^TestChildAnnouncesAnAddress$")}
	p.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s peer=%s,peer-as=%d,as=%d", announcerEnv, node, a.family, a.ip(254), routersAS, nodesAS))
	log, err := os.CreateTemp(a.TempDir(), node)
	if err != nil {
		a.Fatal(err)
	}
	defer log.Close()
	p.Stderr, p.log = log, log.Name()
	if p.in, err = p.StdinPipe(); err != nil {
		a.Fatal(err)
	}
	a.hosts[node].Must(p.Start)
	stuck.Guard(a.T, p.Cmd, log.Name())
	a.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// all has something happen in the cluster, as these nodes see it.
func (a *annunciation) all(what string, nodes ...*nodeProcess) {
	a.Helper()
	for _, p := range nodes {
		if _, err := fmt.Fprintln(p.in, what); err != nil {
			a.Fatal(err)
		}
	}
}

// leadsTo waits until the router leads to these nodes, and the client's packets come by them.
func (a *annunciation) leadsTo(numbers ...int) {
	a.Helper()
	var want []netip.Addr
	for _, n := range numbers {
		want = append(want, netip.MustParseAddr(a.ip(n)))
	}
	addr := netip.MustParseAddr(outside[a.family])
	wait.Until(a, func() error {
		got, err := a.router.Routes()
		if err != nil {
			return err
		}
		if hops := got[netip.PrefixFrom(addr, addr.BitLen())]; !slices.Equal(hops, want) {
			return fmt.Errorf("the router leads to %v, want %v", got, want)
		}
		return a.router.Install()
	})
	by := map[netip.Addr]bool{}
	for range 50 {
		if len(by) == len(want) {
			return
		}
		name, from, err := a.hosts["client"].Ask("tcp", net.JoinHostPort(addr.String(), "80"))
		if err != nil || name != "backend" || !slices.Contains(want, netip.MustParseAddr(from).Unmap()) {
			a.Fatalf("got an answer of %q, which sees %s, %v; want it by one of %v", name, from, err, want)
		}
		by[netip.MustParseAddr(from).Unmap()] = true
	}
	a.Errorf("50 connections came by %v, want by each of %v", by, want)
}

// announced waits until the router leads to these nodes.
func (a *annunciation) announced(numbers ...int) {
	a.Helper()
	wait.Until(a, func() error {
		got, err := a.router.Routes()
		if err != nil {
			return err
		}
		var hops []string
		for _, to := range got {
			for _, hop := range to {
				hops = append(hops, hop.String())
			}
		}
		var want []string
		for _, n := range numbers {
			want = append(want, a.ip(n))
		}
		if !slices.Equal(hops, want) {
			return fmt.Errorf("the router leads to %v, want %v", hops, want)
		}
		return nil
	})
}

// says waits until a node's process has noted an event of its Node.
func (a *annunciation) says(p *nodeProcess, times int, text string) {
	a.Helper()
	wait.Until(a, func() error {
		data, err := os.ReadFile(p.log)
		if got := strings.Count(string(data), text); err != nil || got < times {
			return fmt.Errorf("%q is there %d times, want %d, %v:\n%s", text, got, times, err, data)
		}
		return nil
	})
}

// TestRouterLeadsToTheNodesOfABalancer connects from behind a router to an address of a pool that no link has. It proves
// the routes by the packets that the router's kernel sends.
func TestRouterLeadsToTheNodesOfABalancer(t *testing.T) {
	for family := range places {
		t.Run(string(family), func(t *testing.T) {
			w := newAnnunciation(t, family)
			a, b := w.start("a"), w.start("b")
			w.leadsTo(1, 2)
			w.says(a, 1, "about=a kind=Normal reason=BalancerPeerUp")
			w.all("cordon a", a, b)
			w.leadsTo(2)
			w.all("cordon b", a, b) // nobody is better
			w.leadsTo(1, 2)
			w.all("uncordon a", a, b)
			w.leadsTo(1)
			w.all("unready a", a, b)
			w.leadsTo(2)
			w.all("uncordon b", a, b)
			w.all("ready a", a, b)
			w.leadsTo(1, 2)

			w.all("local a", a, b)
			w.announced(1)
			w.all("local b", a, b)
			w.announced(2)
			w.all("local ", a, b)
			w.announced()
			w.all("make", a, b)
			w.leadsTo(1, 2)
			w.all("remove", a, b)
			w.announced()
			w.all("make", a, b)
			w.leadsTo(1, 2)

			w.router.Forbid(w.ip(1))
			w.leadsTo(2)
			w.says(a, 1, "about=a kind=Warning reason=BalancerPeerDown message=\"A router is not told by BGP of the addresses of balancers, and it is tried again: ")
			w.accept(1)
			w.leadsTo(1, 2)
			w.says(a, 3, "reason=BalancerPeerUp") // it was of no use for a time, too

			if err := b.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			w.leadsTo(1)
			if err := a.in.Close(); err != nil {
				t.Fatal(err)
			}
			w.announced()
			if err := a.Wait(); err != nil {
				t.Errorf("the node's process: %v", err)
			}
		})
	}
}

// TestNothingRunsWithoutPeersOrBalancers waits for all that runs, without an end to it.
func TestNothingRunsWithoutPeersOrBalancers(t *testing.T) {
	objects := balanced(corev1.IPv4Protocol)
	svc := objects[0].(*corev1.Service)
	api := clienttest.NewFilled(objects...)
	peers, err := bgp.ParsePeers([]string{"peer=192.0.2.1,peer-as=1,as=2"})
	if err != nil {
		t.Fatal(err)
	}
	with := []cache.Delta{{Now: &cache.Item{Key: "default/web", Object: svc}}}
	plain := svc.DeepCopy()
	plain.Status = corev1.ServiceStatus{}
	without := []cache.Delta{{Now: &cache.Item{Key: "default/web", Object: plain}}}
	for _, c := range []struct {
		name   string
		peers  []bgp.Peer
		deltas [][]cache.Delta
	}{{"no peers", nil, [][]cache.Delta{with}}, {"no balancers", peers, [][]cache.Delta{without}}, {"no balancer any more", peers, [][]cache.Delta{with, without}}} {
		t.Run(c.name, func(t *testing.T) {
			g := task.NewGroup(t.Context())
			r := newRoutes(g, "a", api, c.peers)
			log := slog.New(slog.DiscardHandler)
			r.events, r.log = told{log}, log
			for _, d := range c.deltas {
				r.seen(d)
			}
			if err := g.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestNodesThatRoutersSendTo(t *testing.T) {
	node := func(name string, marks string) *corev1.Node {
		n := readyNode(name)
		for _, m := range strings.Fields(marks) {
			switch m {
			case "cordoned":
				n.Spec.Unschedulable = true
			case "unready":
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
			case "excluded":
				n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""}
			case "leaving":
				n.Spec.Taints = []corev1.Taint{{Key: core.TaintLeaving}}
			}
		}
		return n
	}
	for _, c := range []struct {
		a, b, c string // what the nodes are like
		here    string // the nodes with endpoints, if they matter
		want    string
	}{
		{"", "", "", "", "abc"},
		{"unready", "", "cordoned", "", "b"},
		{"excluded", "leaving", "", "", "c"},
		{"cordoned", "unready", "cordoned", "", "ac"},
		{"unready", "unready", "excluded", "", "ab"},
		{"", "", "", "b", "b"},
		{"", "cordoned", "", "b", "b"},
		{"", "cordoned", "", "bc", "c"},
		{"", "unready", "", "bc", "c"},
		{"", "", "", "-", ""},
	} {
		nodes := []*corev1.Node{node("a", c.a), node("b", c.b), node("c", c.c)}
		var here map[string]bool
		if c.here != "" {
			here = map[string]bool{}
			for _, name := range c.here {
				here[string(name)] = true
			}
		}
		got := ""
		for _, name := range "abcd" {
			if leads(string(name), nodes, here) {
				got += string(name)
			}
		}
		if got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
