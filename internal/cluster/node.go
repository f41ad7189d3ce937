package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

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
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/container"
	"github.com/kemudi/kemudi/internal/dns"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/plane"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/proxy"
	"github.com/kemudi/kemudi/internal/task"
	"github.com/kemudi/kemudi/internal/version"
)

// localNode is the part of a server that runs pods on its own machine.
type localNode struct {
	s       *server
	cri     *container.CRI
	runtime *container.Embedded // nil: an external one
	agent   *kubelet.Agent
	port    *agentPort // its API, once it is served
}

// newLocalNode starts the container runtime; the rest follows when the API is there.
func (s *server) newLocalNode(g *task.Group) (*localNode, error) {
	n := &localNode{s: s}
	if err := noteLogs(s.o.DataDir, s.o.Agent.PodLogsDir); err != nil {
		return nil, err
	}
	if err := noteRoot(s.o.DataDir, s.o.Agent.RootDir); err != nil {
		return nil, err
	}
	if err := checkPrograms(s.o.DataDir); err != nil {
		return nil, err
	}
	if err := cgroup.Open(cgroup.Top).Check(cgroupParent(s.o.RunDir)); err != nil {
		return nil, err
	}
	if err := ensureHosts(hostsFile); err != nil {
		return nil, err
	}
	if err := podnet.DropMoved(podnetOptions(s.o.DataDir, s.o.RunDir)); err != nil {
		return nil, err
	}
	if s.o.Runtime.Endpoint != "" {
		cri, closer, err := container.Dial(s.o.Runtime.Endpoint)
		if err != nil {
			return nil, err
		}
		n.cri = cri
		if err := container.UnpackPlugins(container.Options{DataDir: s.o.DataDir, RunDir: s.o.RunDir}); err != nil {
			return nil, errors.Join(err, closer.Close())
		}
		g.Go("runtime connection", func(ctx context.Context) error {
			<-ctx.Done()
			return closer.Close()
		})
		return n, nil
	}
	var err error
	n.runtime, err = container.New(container.Options{
		DataDir: s.o.DataDir, RunDir: s.o.RunDir, CgroupParent: cgroupParent(s.o.RunDir), RegistryConfigDir: s.o.Runtime.RegistryDir,
		Handlers: s.o.Runtime.Handlers, OwnTemp: true, Logger: s.o.Logger.With("part", "runtime"),
	})
	if err != nil {
		return nil, err
	}
	n.cri = n.runtime.CRI()
	g.Go("container runtime", n.runtime.Run)
	return n, nil
}

// start starts node agent, pod network, service proxy and DNS, and returns
// when the node is ready for pods.
func (n *localNode) start(g *task.Group, plane *plane.Plane) error {
	o := &n.s.o
	if n.runtime != nil {
		if err := await(g, n.runtime.Ready()); err != nil {
			return err
		}
		o.Step("container runtime", false)
	}
	self := &user.DefaultInfo{Name: "system:node:" + o.NodeName, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	t := plane.Server().As(self, "kubelet")
	recorder := client.NewRecorder(t, o.NodeName, o.Logger)
	g.Go("node events", recorder.Run)
	var err error
	var profile string
	if n.runtime != nil {
		profile = n.runtime.SandboxSeccomp()
	}
	n.agent, err = kubelet.New(kubelet.Options{
		NodeName: o.NodeName, Transport: t, Runtime: n.cri.Runtime, Images: n.cri.Images, Events: recorder.For("kubelet"),
		NodeIPs: n.s.at.Load().node(), ByHand: o.NodeByHand, Labels: o.NodeLabels, Taints: o.NodeTaints, Settings: o.Agent.Settings,
		RootDir: o.Agent.RootDir, PodLogsDir: o.Agent.PodLogsDir, CgroupParent: cgroupParent(o.RunDir), SandboxSeccomp: profile,
		ClusterDNS: []string{o.Network.ClusterDNS.String()}, ClusterDomain: o.Network.ClusterDomain, ResolvConf: o.Network.ResolvConf, ImageConfig: o.Images,
		Connected: n.connected, Version: version.Git(), Port: int(o.Agent.Port), Log: o.Logger.With("part", "kubelet"),
	})
	if err != nil {
		return err
	}
	g.Go("node agent", n.agent.Run)
	if n.runtime != nil {
		g.Go("image changes", func(ctx context.Context) error {
			if err := n.runtime.Images().Follow(ctx, n.agent.ImagesChanged); ctx.Err() == nil {
				o.Logger.Warn("images that are imported will be seen in the node's status later", "err", err)
			}
			return nil
		})
	}
	if err := n.serve(g); err != nil {
		return err
	}
	if err := n.servePort(g, t); err != nil {
		return err
	}
	share, err := n.podCIDRs(g.Context(), plane)
	if err != nil {
		return err
	}
	if err := n.markControlPlane(g.Context(), plane); err != nil {
		return err
	}
	if err := n.network(g, plane, share, recorder); err != nil {
		return err
	}
	if err := n.ready(g.Context(), plane); err != nil {
		return err
	}
	o.Step("node is ready", true)
	return nil
}

// connected is told the addresses that a new pod has got.
func (n *localNode) connected(ips []string) {
	var addrs []netip.Addr
	for _, ip := range ips {
		if a, err := netip.ParseAddr(ip); err == nil {
			addrs = append(addrs, a)
		}
	}
	if err := podnet.ForgetNeighbours(podnetOptions(n.s.o.DataDir, n.s.o.RunDir), addrs); err != nil {
		n.s.o.Logger.Warn("cannot forget who had a pod's address before: it may not answer for some seconds", "err", err)
	}
}

// markControlPlane notes in this machine's Node that it is a server too: a node
// agent may not say that of itself.
func (n *localNode) markControlPlane(ctx context.Context, plane *plane.Plane) error {
	_, err := client.For(plane.Admin(), core.Nodes).Patch(ctx, "", n.s.o.NodeName, "", client.Patch{
		Type: types.MergePatchType, Data: []byte(`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
	})
	return err
}

// agentSocket is where the node agent's API is served to the API server of the
// same machine. Who can open it is root already.
func (n *localNode) agentSocket() string { return filepath.Join(n.s.o.RunDir, "kubelet.sock") }

func (n *localNode) serve(g *task.Group) error {
	path := n.agentSocket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove old socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(g.Context(), "unix", path)
	if err != nil {
		return fmt.Errorf("serve the node agent's API: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return fmt.Errorf("serve the node agent's API: %w", err)
	}
	srv := &http.Server{Handler: n.agent.Handler(), ReadHeaderTimeout: headerTimeout}
	g.Go("node agent API", func(context.Context) error {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go("end node agent API", func(ctx context.Context) error {
		<-ctx.Done()
		return srv.Close()
	})
	return nil
}

// podCIDRs waits for the node's share of the pod addresses.
func (n *localNode) podCIDRs(ctx context.Context, plane *plane.Plane) ([]netip.Prefix, error) {
	node, err := n.await(ctx, plane, func(node *corev1.Node) bool { return len(node.Spec.PodCIDRs) > 0 })
	if err != nil {
		return nil, err
	}
	var share []netip.Prefix
	for _, cidr := range node.Spec.PodCIDRs {
		p, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fmt.Errorf("pod CIDR of node %s: %w", node.Name, err)
		}
		share = append(share, p)
	}
	return share, nil
}

const headerTimeout = 30 * time.Second

// errFound ends a watch that saw what it waited for.
var errFound = errors.New("found")

// await waits until this machine's Node passes the test.
func (n *localNode) await(ctx context.Context, plane *plane.Plane, test func(*corev1.Node) bool) (*corev1.Node, error) {
	var found *corev1.Node
	nodes := client.Cached(plane.Admin(), core.Nodes, "")
	err := nodes.Each(ctx, cache.FollowOptions{}, func([]cache.Delta) error {
		if node, ok := nodes.Get("", n.s.o.NodeName); ok && test(node) {
			found = node
			return errFound
		}
		return nil
	})
	if !errors.Is(err, errFound) {
		return nil, err
	}
	return found, nil
}

// network starts the pod network, the service proxy and DNS.
func (n *localNode) network(g *task.Group, plane *plane.Plane, share []netip.Prefix, recorder *client.Recorder) error {
	o := &n.s.o
	options := podnetOptions(o.DataDir, o.RunDir)
	options.PodCIDRs, options.ClusterCIDRs, options.ServiceCIDRs = share, o.Network.ClusterCIDRs, o.Network.ServiceCIDRs
	options.Log = o.Logger.With("part", "podnet")
	options.Trouble = func(message string) {
		if node, ok := client.Cached(plane.Admin(), core.Nodes, "").Get("", o.NodeName); ok {
			recorder.For("kemudi").Event(node, corev1.EventTypeWarning, "FirewallDropsForwarded", message)
		}
	}
	pods, err := podnet.New(options)
	if err != nil {
		return err
	}
	if err := pods.Ensure(g.Context()); err != nil {
		return fmt.Errorf("pod network: %w", err)
	}
	g.Go("pod network", func(ctx context.Context) error {
		defer pods.Close()
		return pods.Run(ctx)
	})
	o.Step("pod network", false)
	services, err := proxy.New(proxy.Options{
		Config:    o.proxy(),
		Transport: plane.Server().As(&user.DefaultInfo{Name: user.KubeProxy, Groups: []string{user.AllAuthenticated}}, "kube-proxy"),
		Events:    recorder.For("kube-proxy"), Log: o.Logger.With("part", "proxy"), Metrics: n.s.registry,
	})
	if err != nil {
		return err
	}
	g.Go("service proxy", func(ctx context.Context) error {
		defer services.Close()
		return services.Run(ctx)
	})
	return n.dns(g, plane, share)
}

// proxy is what the rules of the service proxy depend on.
func (o *Options) proxy() proxy.Config {
	n := &o.Network
	return proxy.Config{
		NodeName: o.NodeName, ClusterCIDRs: n.ClusterCIDRs, ServiceCIDRs: n.ServiceCIDRs,
		NodePortAddresses: n.NodePortAddresses, NodePortPrimary: n.NodePortPrimary, MasqueradeAll: n.MasqueradeAll,
	}
}

// dnsPort is where DNS is served on the address of the bridge.
const dnsPort = 53

// dns serves DNS on the node's end of the pod network and publishes it.
func (n *localNode) dns(g *task.Group, plane *plane.Plane, share []netip.Prefix) error {
	o := &n.s.o
	i := slices.IndexFunc(share, func(p netip.Prefix) bool { return p.Addr().Is4() == o.Network.ClusterDNS.Is4() })
	gateway := share[max(i, 0)].Masked().Addr().Next()
	names, err := dns.New(dns.Options{
		Transport:  plane.Server().As(&user.DefaultInfo{Name: "system:serviceaccount:kube-system:coredns", Groups: []string{"system:serviceaccounts", user.AllAuthenticated}}, "coredns"),
		Domain:     o.Network.ClusterDomain,
		Addresses:  []netip.AddrPort{netip.AddrPortFrom(gateway, dnsPort)},
		ServiceIP:  o.Network.ClusterDNS,
		ResolvConf: o.Network.ResolvConf, Logger: o.Logger.With("part", "dns"),
	})
	if err != nil {
		return err
	}
	g.Go("dns", names.Run)
	if err := n.publishDNS(g.Context(), plane.Admin(), gateway); err != nil {
		return err
	}
	if err := await(g, names.Ready()); err != nil {
		return err
	}
	o.Step("cluster DNS", false)
	return nil
}

// publishDNS makes this node's DNS an endpoint of the service kube-dns: clients
// are sent to that of their own node first.
func (n *localNode) publishDNS(ctx context.Context, t client.Transport, gateway netip.Addr) error {
	o := &n.s.o
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

// ready waits until the node is ready.
func (n *localNode) ready(ctx context.Context, plane *plane.Plane) error {
	_, err := n.await(ctx, plane, func(node *corev1.Node) bool {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status == corev1.ConditionTrue
			}
		}
		return false
	})
	return err
}
