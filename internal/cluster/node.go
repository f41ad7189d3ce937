package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/worker"
	"github.com/kemudi/kemudi/internal/worker/settings"
)

// worker is what the machine is told that runs pods.
func (o *Options) worker() worker.Options {
	return worker.Options{
		DataDir: o.DataDir, RunDir: o.RunDir,
		NodeName: o.NodeName, ByHand: o.NodeByHand, Labels: o.NodeLabels, Taints: o.NodeTaints,
		Agent: o.Agent, Runtime: o.Runtime, Images: o.Images, ResolvConf: o.Network.ResolvConf,
		NodePorts: worker.NodePorts{Addresses: o.Network.NodePortAddresses, Primary: o.Network.NodePortPrimary, MasqueradeAll: o.Network.MasqueradeAll},
		Logger:    o.Logger, Step: o.Step,
	}
}

// newWorker begins to make this machine one that runs pods.
func (s *server) newWorker(g *task.Group) (*worker.Worker, error) {
	o := s.o.worker()
	o.Registry = s.registry
	return worker.New(g, o)
}

// startWorker has this machine run pods, of this server's cluster.
func (s *server) startWorker(g *task.Group) error {
	if err := s.serving.renew(); err != nil {
		return err
	}
	if err := s.worker.Start(g, worker.Cluster{
		Transport: s.asNode(), ClientCA: s.pki.CA.Pool(), Serving: s.serving.get, NodeIPs: s.at.Load().node(), Settings: s.o.Network.settings(),
	}); err != nil {
		return err
	}
	if err := s.markControlPlane(g.Context()); err != nil {
		return err
	}
	if err := s.publishDNS(g.Context()); err != nil {
		return err
	}
	s.o.Step("node is ready", true)
	return nil
}

// asNode is the API as this machine's node sees it.
func (s *server) asNode() client.Transport {
	self := &user.DefaultInfo{Name: "system:node:" + s.o.NodeName, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	return s.plane.Server().As(self, "kubelet")
}

// serving is the certificate of this machine's node agent.
type serving struct {
	s    *server
	cert atomic.Pointer[tls.Certificate]
}

// renew makes the certificate, or reads the one that is still good.
func (c *serving) renew() error {
	o := &c.s.o
	pair, err := c.s.pki.Pair("kubelet", pki.Subject{
		Name: "system:node:" + o.NodeName, Organizations: []string{"system:nodes"}, Server: true,
		Hosts: append(c.s.at.Load().node(), o.NodeName, "localhost", "127.0.0.1", "::1"),
	})
	if err != nil {
		return err
	}
	cert := pair.TLS()
	c.cert.Store(&cert)
	return nil
}

func (c *serving) get() (*tls.Certificate, error) { return c.cert.Load(), nil }

// settings is what all machines of the cluster have in common.
func (n *Network) settings() settings.Settings {
	return settings.Settings{ClusterCIDRs: n.ClusterCIDRs, ServiceCIDRs: n.ServiceCIDRs, ClusterDNS: n.ClusterDNS, ClusterDomain: n.ClusterDomain}
}

// markControlPlane notes in this machine's Node that it is a server too: a node
// agent may not say that of itself.
func (s *server) markControlPlane(ctx context.Context) error {
	_, err := client.For(s.plane.Admin(), core.Nodes).Patch(ctx, "", s.o.NodeName, "", client.Patch{
		Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
	})
	return err
}

// dnsPort is where a node serves DNS on the address of its bridge.
const dnsPort = 53

// publishDNS makes this node's DNS an endpoint of the service kube-dns: clients
// are sent to that of their own node first.
func (s *server) publishDNS(ctx context.Context) error {
	o, t := &s.o, s.plane.Admin()
	gateway, err := s.gateway()
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: "kube-dns",
		Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS", "kubernetes.io/cluster-service": "true"},
	}
	if err := plane.Ensure(ctx, t, core.Services, &corev1.Service{
		ObjectMeta: meta,
		Spec: corev1.ServiceSpec{
			ClusterIP: o.Network.ClusterDNS.String(), TrafficDistribution: ptr.To(corev1.ServiceTrafficDistributionPreferSameNode),
			Ports: []corev1.ServicePort{
				{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(dnsPort)},
				{Name: "dns-tcp", Port: 53, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(dnsPort)},
			},
		},
	}); err != nil {
		return err
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: "kube-dns-" + o.NodeName,
			Labels: map[string]string{discoveryv1.LabelServiceName: "kube-dns", discoveryv1.LabelManagedBy: "kemudi"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses: []string{gateway.String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true)}, NodeName: &o.NodeName,
			Hints: &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: o.NodeName}}},
		}},
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("dns"), Port: ptr.To[int32](dnsPort), Protocol: ptr.To(corev1.ProtocolUDP)},
			{Name: ptr.To("dns-tcp"), Port: ptr.To[int32](dnsPort), Protocol: ptr.To(corev1.ProtocolTCP)},
		},
	}
	if gateway.Is6() {
		slice.AddressType = discoveryv1.AddressTypeIPv6
	}
	return put(ctx, client.For(t, discovery.EndpointSlices), slice, func(has *discoveryv1.EndpointSlice) bool {
		return equality.Semantic.DeepEqual(has.Endpoints, slice.Endpoints) && equality.Semantic.DeepEqual(has.Ports, slice.Ports)
	})
}

// gateway is this node's end of the pod network, in the family of the DNS service.
func (s *server) gateway() (netip.Addr, error) {
	node, ok := client.Cached(s.plane.Admin(), core.Nodes, "").Get("", s.o.NodeName)
	if !ok {
		return netip.Addr{}, fmt.Errorf("publish DNS: node %s is gone", s.o.NodeName)
	}
	for _, cidr := range node.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(cidr)
		if err == nil && p.Addr().Is4() == s.o.Network.ClusterDNS.Is4() {
			return p.Masked().Addr().Next(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("publish DNS: node %s has no pod addresses of the family of %s", s.o.NodeName, s.o.Network.ClusterDNS)
}
