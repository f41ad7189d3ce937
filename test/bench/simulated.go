package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/client/https"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	apidef "github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker"
)

// machines makes simulated agents of a server: each a node agent without a machine, with a
// certificate, a connection, caches and a tunnel of its own, as a real one.
type machines struct {
	server string
	pki    *pki.PKI
}

// newMachines takes a copy of the server's keys, by which nodes get certificates.
func (b *bench) newMachines(s *server, a *access) (*machines, error) {
	dir := filepath.Join(filepath.Dir(s.data), "keys")
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("copy keys: %w", err)
	}
	if err := os.CopyFS(filepath.Join(dir, "pki"), os.DirFS(filepath.Join(s.data, "pki"))); err != nil {
		return nil, fmt.Errorf("copy keys: %w", err)
	}
	keys, err := pki.Ensure(pki.Options{Dir: dir})
	return &machines{a.url, keys}, err
}

// run runs the agent of the machine of a number until ctx ends, and calls ready when its
// node is.
func (m *machines) run(ctx context.Context, number int, ready func()) error {
	name := fmt.Sprintf("simulated-%d", number)
	pair, err := m.pki.NodeClient(name)
	if err != nil {
		return err
	}
	cert := pair.TLS()
	certificate := func() (*tls.Certificate, error) { return &cert, nil }
	log := slog.New(slog.DiscardHandler)
	api, err := https.New(https.Options{
		Servers: []string{m.server}, CA: m.pki.CA.CertPEM(), Certificate: certificate, Agent: "kubelet", Trim: worker.Trim(name), Logger: log,
	})
	if err != nil {
		return err
	}
	shared := worker.Shared{Transport: api}
	events := client.NewRecorder(shared, name, log)
	runtime := fakecri.New(fakecri.Options{})
	agent, err := kubelet.New(kubelet.Options{
		NodeName: name, Transport: shared, Runtime: runtime, Images: runtime, Events: events.For("kubelet"), Simulated: true,
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi")},
		NodeIPs:  []string{netip.AddrFrom4([4]byte{10, 1, byte(number >> 8), byte(number)}).String()}, Log: log,
	})
	if err != nil {
		return err
	}
	tunnels, err := dialback.NewAgent(dialback.AgentOptions{
		NodeName: name, CA: m.pki.CA.Pool(), Certificate: certificate,
		Scope: dialback.Scope{NodeAgent: "127.0.0.1:10250", Pods: func() []netip.Prefix { return nil }},
	})
	if err != nil {
		return err
	}
	tunnels.SetServers([]string{m.server})
	g := task.NewGroup(ctx)
	g.Go("api", api.Run)
	g.Go("events", events.Run)
	g.Go("node agent", agent.Run)
	g.Go("tunnels", tunnels.Run)
	follow(shared, name)
	nodes := client.Cached(shared, core.Nodes, "")
	g.Go("ready", func(ctx context.Context) error {
		told := false
		return nodes.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
			if node, ok := nodes.Get("", name); ok && !told && isReady(node) {
				told = true
				ready()
			}
			return nil
		})
	})
	return g.Wait()
}

// follow opens the caches that proxy, DNS and pod network of a machine have, beside those of
// the node agent.
func follow(t client.Transport, node string) {
	for _, c := range []struct {
		def   *apidef.Def
		scope string
	}{
		{core.Services.Def, ""},
		{discovery.EndpointSlices.Def, ""},
		{core.Namespaces.Def, ""},
		{core.ConfigMaps.Def, "metadata.namespace=" + metav1.NamespaceSystem + ",metadata.name=coredns"},
		{core.ConfigMaps.Def, "metadata.namespace=" + metav1.NamespaceSystem + ",metadata.name=kube-dns"},
		{core.PersistentVolumes.Def, claims.LocalNode + "=" + node},
	} {
		t.Cache(c.def, c.scope)
	}
}

func isReady(node *corev1.Node) bool {
	c := core.NodeCondition(&node.Status, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}
