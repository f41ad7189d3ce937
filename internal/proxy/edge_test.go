package proxy

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/edge"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// edge runs an edge that listens on n1, and is told of one door. Its endpoints are on the machine of the test.
func (s *site) edge(d *route.Door, endpoint string) {
	s.t.Helper()
	l, err := net.Listen("unix", filepath.Join(s.t.TempDir(), "s"))
	if err != nil {
		s.t.Fatal(err)
	}
	e := edge.New(edge.Options{Control: l, Listen: func(ctx context.Context, network, addr string) (in net.Listener, err error) {
		err = s.n1.Do(func() error {
			in, err = (&net.ListenConfig{}).Listen(ctx, network, addr)
			return err
		})
		return in, err
	}})
	g := task.NewGroup(s.t.Context())
	g.Go("edge", e.Run)
	s.t.Cleanup(func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			s.t.Error(err)
		}
	})
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := edge.NewControl(conn).Send(edge.Order{Generation: 1, Change: route.Change{
		Doors: map[string]*route.Door{"web": d}, Upstreams: map[string]*route.Upstream{"web": {Endpoints: []string{endpoint}}},
	}}); err != nil {
		s.t.Fatal(err)
	}
}

// TestEdgesTellPodsWhereClientsHaveConnected has the rules and an edge together: what the edge tells of a client and of the
// address that it has connected to is what the client knows, in both families.
func TestEdgesTellPodsWhereClientsHaveConnected(t *testing.T) {
	s := newSite(t)
	s.client.Route("fd00:203::/64", "fd00:1::1")
	s.put(backends("web", "10.244.1.2@n1"), backends("web", "fd00:244:0:1::2@n1"))
	s.model.cfg.Edge = true
	s.model.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.168.1.1"}, {Type: corev1.NodeInternalIP, Address: "fd00:1::1"},
	}}})
	s.put(service("web", "10.96.0.10 fd00:96::a", func(svc *corev1.Service) {
		svc.Annotations = map[string]string{"kemudi.io/load-balancer-proxy-protocol": "v1"}
		svc.Spec.Type, svc.Spec.Ports = corev1.ServiceTypeLoadBalancer, svc.Spec.Ports[:1]
		svc.Spec.Ports[0].NodePort = 30080
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}, {IP: "fd00:203::7"}}
		svc.Status.Conditions = []metav1.Condition{{Type: core.ConditionBalanced, Status: metav1.ConditionTrue}}
	}))
	pod, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer pod.Close()
	s.edge(&route.Door{
		Port: 30080, Public: 80, Listeners: []route.Listener{{Mode: route.Bytes, Sites: []*route.Site{{
			Key: "web", Rules: []route.Rule{{Type: route.Prefix, Do: 1}}, Actions: []route.Action{{Backends: []route.Backend{{Upstream: "web", Weight: 1}}}},
		}}}},
		Relay: &route.Relay{Header: 1, Addresses: []netip.Addr{netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr("fd00:203::7")}},
	}, pod.Addr().String())
	for _, tc := range []struct{ family, addr, client, balancer string }{
		{"TCP4", "203.0.113.7:80", "192.168.1.100", "203.0.113.7"}, {"TCP6", "[fd00:203::7]:80", "fd00:1::100", "fd00:203::7"},
	} {
		var c net.Conn
		wait.Until(t, func() (err error) {
			c, err = s.client.Dial("tcp", tc.addr)
			return err
		})
		defer c.Close()
		got, err := pod.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer got.Close()
		if err := got.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		text, err := bufio.NewReader(got).ReadString('\n')
		if want := fmt.Sprintf("PROXY %s %s %s %d 80\r\n", tc.family, tc.client, tc.balancer, c.LocalAddr().(*net.TCPAddr).Port); err != nil || text != want {
			t.Errorf("%s: the pod was told %q, %v; want %q", tc.addr, text, err, want)
		}
	}
	trace.Proves(t, "SVC-180")
}
