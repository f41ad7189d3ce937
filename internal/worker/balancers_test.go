//go:build !race

package worker

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/announce"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/test/stuck"
	"github.com/kemudi/kemudi/test/wait"
)

// answererEnv names the node that a child process of the test is, and the family.
const answererEnv = "KEMUDI_TEST_ANSWERER"

// TestChildAnswersForAnAddress is a node's service proxy with the addresses that it answers for, until it is killed.
func TestChildAnswersForAnAddress(t *testing.T) {
	node, family, ok := strings.Cut(os.Getenv(answererEnv), " ")
	if !ok {
		t.Skip("only as the child of another test")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	api := clienttest.NewFilled(balanced(corev1.IPFamily(family))...)
	g := task.NewGroup(t.Context())
	b := newBalancers(g, node, api)
	b.events, b.log = client.NoEvents, log
	p, err := proxy.New(proxy.Options{Config: proxy.Config{NodeName: node}, Transport: api, Log: log, Services: b.seen})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	g.Go("proxy", p.Run)
	t.Error(g.Wait())
}

// places are where things are in the network of the test.
var places = map[corev1.IPFamily]struct{ balancer, service, network string }{
	corev1.IPv4Protocol: {"10.9.0.100", "10.96.0.10", "10.9.0.%d/24"},
	corev1.IPv6Protocol: {"fd09::100", "fd96::10", "fd09::%d/64"},
}

// balanced is a Service for whose address node a answers, and b stands by; its endpoint is at another machine.
func balanced(family corev1.IPFamily) []resource.Object {
	at, meta := places[family], metav1.ObjectMeta{Namespace: "default", Name: "web"}
	svc := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: at.service, ClusterIPs: []string{at.service}, IPFamilies: []corev1.IPFamily{family},
		Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: at.balancer}}
	svc.Status.Conditions = []metav1.Condition{{Type: core.ConditionAnnounced, Status: metav1.ConditionTrue, Message: announce.Text([]string{"a", "b"}, 1)}}
	backend := strings.Split(fmt.Sprintf(at.network, 9), "/")[0]
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressType(family), Ports: []discoveryv1.EndpointPort{{Name: ptr.To(""), Port: ptr.To[int32](8080), Protocol: ptr.To(corev1.ProtocolTCP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{backend}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}}},
	}
	kubernetes := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "this-cluster"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "elsewhere"}, Spec: corev1.PodSpec{NodeName: "other"}}
	return []resource.Object{svc, slice, kubernetes, pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}}
}

// TestAnotherNodeAnswersWhenOneIsKilled connects from outside of the cluster to the address of a balancer, by
// ARP and NDP, while the process that answers for it is killed.
func TestAnotherNodeAnswersWhenOneIsKilled(t *testing.T) {
	t.Parallel()
	for family, at := range places {
		t.Run(string(family), func(t *testing.T) {
			t.Parallel()
			middle, hosts := nettest.New(t, "switch"), map[string]*nettest.Host{}
			for name, number := range map[string]int{"a": 1, "b": 2, "client": 3, "backend": 9} {
				h := nettest.New(t, name)
				h.Router()
				nettest.Link(h, "eth0", middle, name)
				h.Addr("eth0", fmt.Sprintf(at.network, number))
				hosts[name] = h
			}
			middle.Bridge("br0", "a", "b", "client", "backend")
			hosts["backend"].Serve("backend", "tcp", "[::]:8080")
			start := func(node string) *exec.Cmd {
				cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildAnswersForAnAddress$")
				cmd.Env = append(os.Environ(), answererEnv+"="+node+" "+string(family))
				log, err := os.CreateTemp(t.TempDir(), node)
				if err != nil {
					t.Fatal(err)
				}
				defer log.Close()
				cmd.Stderr = log
				hosts[node].Must(cmd.Start)
				stuck.Guard(t, cmd, log.Name())
				t.Cleanup(func() {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
				})
				return cmd
			}
			// by waits until the client is led to the backend by a node, whose address the backend sees.
			by := func(node string, number int) {
				t.Helper()
				want := strings.Split(fmt.Sprintf(at.network, number), "/")[0]
				wait.Until(t, func() error {
					name, client, err := hosts["client"].Ask("tcp", net.JoinHostPort(at.balancer, "80"))
					if err != nil || name != "backend" || netip.MustParseAddr(client).Unmap() != netip.MustParseAddr(want) {
						return fmt.Errorf("got an answer of %q, which sees %s, %v; want it by node %s", name, client, err, node)
					}
					return nil
				})
			}
			a := start("a")
			by("a", 1)
			start("b")
			by("a", 1)
			if err := a.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			_ = a.Wait()
			by("b", 2)
			t.Logf("another node answered after %s", time.Since(killed))
			start("a")
			by("a", 1)
		})
	}
}
