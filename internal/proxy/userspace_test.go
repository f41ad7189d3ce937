package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/client/clienttest"
	"github.com/kemudi/kemudi/internal/podnet/nettest"
	"github.com/kemudi/kemudi/internal/podnet/nft/table"
	"github.com/kemudi/kemudi/internal/proxy/userspace"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/trace"
	"github.com/kemudi/kemudi/test/wait"
)

// carry runs a proxy on n1 that carries connections itself.
func (s *site) carry(objects ...resource.Object) (*Proxy, *clienttest.Filled) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.1.1"}, {Type: corev1.NodeInternalIP, Address: "fd00:1::1"}}
	c := clienttest.NewFilled(append(objects, node)...)
	p := s.run(Options{Config: Config{Userspace: true}, Transport: c}, func(p *Proxy) { p.relays = s.relays() })
	soon(s.t, "the rules are in force", p.Synced)
	return p, c
}

// relays carry connections on n1.
func (s *site) relays() *userspace.Relays {
	dial := func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		err = s.n1.Do(func() error {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
			return err
		})
		return conn, err
	}
	return userspace.New(userspace.Options{Listen: s.listen, Dial: dial, Log: slog.New(slog.DiscardHandler)})
}

// listen opens a port of n1.
func (s *site) listen(ctx context.Context, network, addr string) (l net.Listener, err error) {
	err = s.n1.Do(func() error {
		l, err = (&net.ListenConfig{}).Listen(ctx, network, addr)
		return err
	})
	return l, err
}

// turns are who answers, one connection after the other, and whom they see.
func (s *site) turns(from *nettest.Host, addr string, n int) (names string, clients []string) {
	s.t.Helper()
	for range n {
		name, client, err := from.Ask("tcp", addr)
		if err != nil {
			s.t.Fatalf("%s: %v", addr, err)
		}
		names += name
		if !slices.Contains(clients, client) {
			clients = append(clients, client)
		}
	}
	return names, clients
}

func TestConnectionsAreCarriedByTheProcess(t *testing.T) {
	s := newSite(t)
	s.serve()
	s.client.Route("fd00:96::/64", "fd00:1::1")
	web := service("web", "10.96.0.10 fd00:96::a", nodePort)
	three := backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.2.2@n2")
	p, c := s.carry(web, three, backends("web", "fd00:244:0:1::2@n1"))
	key := userspace.Key{Port: "t"}
	key.Namespace, key.Name = "default", "web"
	trace.Proves(t, "SVC-036", "SVC-037")
	number, err := p.relays.Open(task.NewGroup(t.Context()), key, ":0") // which is open
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := s.turns(s.client, fmt.Sprintf("192.168.1.1:%d", number), 3); len(names) != 3 {
		t.Errorf("the proxy port: %s answered, want an endpoint each time", names)
	}
	trace.Proves(t, "SVC-039", "SVC-040")
	for _, addr := range []string{"10.96.0.10:80", "192.168.1.1:30080"} {
		names, _ := s.turns(s.client, addr, 6)
		if names[:3] != names[3:] || !strings.Contains(names, "a") || !strings.Contains(names, "b") || !strings.Contains(names, "c") {
			t.Errorf("%s: %s answered, want a, b and c in turn", addr, names)
		}
	}
	if names, clients := s.turns(s.client, "[fd00:96::a]:80", 2); names != "aa" || !slices.Equal(clients, []string{"fd00:244:0:1::1"}) {
		t.Errorf("IPv6: %s answered and saw %v, want a that sees the node", names, clients)
	}
	trace.Proves(t, "SVC-044")
	if _, clients := s.turns(s.b, "10.96.0.10:80", 3); slices.Contains(clients, "10.244.1.3") {
		t.Errorf("pods saw %v, want the node and not the pod that asks", clients)
	}
	// An endpoint that goes ends no connection (U2).
	long, err := s.client.Dial("tcp", "10.96.0.10:80")
	if err != nil {
		t.Fatal(err)
	}
	defer long.Close()
	if name, _, err := nettest.AskOn(long); err != nil || !strings.Contains("abc", name) {
		t.Errorf("got %q, %v; want an endpoint", name, err)
	}
	c.Put(backends("web"))
	soon(t, "the service refuses", func() bool {
		_, _, err := s.client.Ask("tcp", "10.96.0.10:80")
		return err != nil
	})
	if err := long.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := long.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection from before: got %v, want that it lasts", err)
	}
	c.Put(three)
	// A service that goes takes its port along.
	c.Remove(web)
	soon(t, "the proxy port is closed", func() bool {
		_, _, err := s.client.Ask("tcp", fmt.Sprintf("192.168.1.1:%d", number))
		return err != nil
	})
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/proxyMode", nil))
	if w.Body.String() != "userspace" {
		t.Errorf("/proxyMode: got %s, want userspace", w.Body)
	}
}

func TestAnotherEndpointIsTriedWhereOneDoesNotAnswer(t *testing.T) {
	s := newSite(t)
	s.b.Serve("b", "tcp", ":8080") // nobody listens at a, and nobody has the other address
	_, c := s.carry(service("web", "10.96.0.10"), backends("web", "10.244.1.2@n1", "10.244.1.3@n1", "10.244.1.99@n1"))
	trace.Proves(t, "SVC-041")
	if names, _ := s.turns(s.client, "10.96.0.10:80", 4); names != "bbbb" {
		t.Errorf("%s answered, want b each time", names)
	}
	// Affinity keeps a client with who has answered.
	trace.Proves(t, "SVC-038")
	s.a.Serve("a", "tcp", ":8080")
	c.Put(service("web", "10.96.0.10", sticking), backends("web", "10.244.1.2@n1", "10.244.1.3@n1"))
	wait.Until(t, func() error {
		if names, _ := s.turns(s.client, "10.96.0.10:80", 6); names != "aaaaaa" && names != "bbbbbb" {
			return fmt.Errorf("%s answered, want one endpoint", names)
		}
		return nil
	})
}

func TestAssociationsOfSCTPAreNotCarried(t *testing.T) {
	trace.Proves(t, "SVC-042")
	svc := service("web", "10.96.0.10", func(svc *corev1.Service) {
		svc.Spec.Ports = []corev1.ServicePort{{Name: "s", Port: 80, Protocol: corev1.ProtocolSCTP}}
	})
	slice := backends("web", "10.244.1.2@n1")
	slice.Ports = []discoveryv1.EndpointPort{{Name: &svc.Spec.Ports[0].Name, Port: slice.Ports[0].Port, Protocol: &svc.Spec.Ports[0].Protocol}}
	for userspace, want := range map[bool]uint32{true: actionReject, false: way{what: pick}.number(1)} {
		m := NewModel(Config{NodeName: "n1", Userspace: userspace})
		m.SetService(svc)
		m.SetSlice(slice)
		m.Commit()
		frag := m.owners[serviceKey("default", "web")].frags[0]
		at := Key{Set: ServiceIPs, Addr: netip.MustParseAddr("10.96.0.10"), Proto: SCTP, Port: 80}.elem(families[0], Value{Front: Front{Do: want}})
		if !slices.ContainsFunc(frag.elems, func(e table.Elem) bool { return e.ID == at.ID && e.Value == at.Value }) {
			t.Errorf("userspace %v: the rules have not %s", userspace, actionText(want))
		}
	}
}
