package clusterdns

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/corefile"
	"github.com/kemudi/kemudi/internal/podnet"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/version"
)

const (
	namespace = metav1.NamespaceSystem
	name      = "kube-dns"
	key       = namespace + "/" + name
	// managedBy is the value of the label that marks slices as this controller's.
	managedBy = "kemudi"
	// port is where nodes serve DNS, and metricsPort its metrics.
	port        = 53
	metricsPort = 9153
)

// Options say how DNS is reached. Address is required.
type Options struct {
	Address    netip.Addr // of the service
	MaxInSlice int        // as of all slices (--max-endpoints-per-slice)
	Domain     string     // of the cluster; default cluster.local
}

// New returns the controller. It has one key.
func New(o Options) *controller.Controller {
	return controller.NewKeyed(controller.Keyed{
		Name: "cluster-dns-controller",
		Watches: []controller.Watch{
			{Def: core.Nodes.Def, Keys: func(*controller.Kit, resource.Object) []string { return []string{key} }, Same: sameNode},
			controller.Mapped(core.Services, func(_ *controller.Kit, s *corev1.Service) []string {
				if cache.Key(s.Namespace, s.Name) != key {
					return nil
				}
				return []string{key}
			}),
			controller.Mapped(discovery.EndpointSlices, func(_ *controller.Kit, s *discoveryv1.EndpointSlice) []string {
				if !ours(s) {
					return nil
				}
				return []string{key}
			}),
			controller.Mapped(core.ConfigMaps, func(_ *controller.Kit, m *corev1.ConfigMap) []string {
				if m.Name != corefile.ConfigMap || m.Namespace != namespace {
					return nil
				}
				return []string{key}
			}),
			{Def: networking.ServiceCIDRs.Def, Keys: func(*controller.Kit, resource.Object) []string { return []string{key} }},
		},
		Writes: []controller.Permission{
			controller.Create(core.Services.Def), controller.Update(core.Services.Def), controller.Create(core.ConfigMaps.Def),
			controller.Create(discovery.EndpointSlices.Def), controller.Update(discovery.EndpointSlices.Def), controller.Delete(discovery.EndpointSlices.Def),
		},
		Setup: func(k *controller.Kit) func(context.Context, string) (controller.Next, error) {
			r := &reconciler{
				o: o, nodes: controller.For(k, core.Nodes), services: controller.For(k, core.Services),
				slices: controller.For(k, discovery.EndpointSlices), configMaps: controller.For(k, core.ConfigMaps), ranges: controller.For(k, networking.ServiceCIDRs),
			}
			return r.reconcile
		},
	})
}

type reconciler struct {
	o        Options
	nodes    controller.Client[*corev1.Node]
	services controller.Client[*corev1.Service]
	slices   controller.Client[*discoveryv1.EndpointSlice]
	ranges   controller.Client[*networkingv1.ServiceCIDR]

	configMaps controller.Client[*corev1.ConfigMap]
}

// reconcile makes the service and the Corefile if a node serves DNS, and its slices hold all
// that do.
func (r *reconciler) reconcile(ctx context.Context, _ string) (controller.Next, error) {
	var servers []server
	for _, node := range r.nodes.List("", labels.Everything()) {
		if s, ok := serverOf(node); ok {
			servers = append(servers, s)
		}
	}
	svc, ok := r.services.Get(namespace, name)
	if !ok {
		if len(servers) == 0 {
			return controller.Done, r.write(ctx, change{drop: r.existing()})
		}
		_, err := r.services.Create(ctx, r.o.service(len(r.families()) == 2))
		if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil
		}
		return controller.Done, err // its slices follow when it is seen
	}
	if len(svc.Spec.Selector) > 0 || svc.DeletionTimestamp != nil {
		servers = nil
	} else if now := follow(withMetrics(svc), r.families()); now != svc {
		if _, err := r.services.Update(ctx, now); err != nil {
			return controller.Done, err
		}
	}
	if len(servers) > 0 {
		if err := r.corefile(ctx); err != nil {
			return controller.Done, err
		}
	}
	return controller.Done, r.write(ctx, plan(servers, svc.Spec.IPFamilies, r.existing(), r.o.MaxInSlice))
}

// corefile makes the config map that says what DNS does, for people to change. Servers do the
// same without it.
func (r *reconciler) corefile(ctx context.Context) error {
	if _, ok := r.configMaps.Get(namespace, corefile.ConfigMap); ok {
		return nil
	}
	_, err := r.configMaps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: corefile.ConfigMap},
		Data:       map[string]string{corefile.Key: corefile.Default(r.o.Domain)},
	})
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = nil
	}
	return err
}

// families are those of which services get addresses at present.
func (r *reconciler) families() (list []corev1.IPFamily) {
	for _, c := range r.ranges.List("", nil) {
		if !networking.ServiceCIDRReady(c) {
			continue
		}
		for _, p := range networking.ServiceRanges(c) {
			family := corev1.IPv4Protocol
			if p.Addr().Is6() {
				family = corev1.IPv6Protocol
			}
			if !slices.Contains(list, family) {
				list = append(list, family)
			}
		}
	}
	return list
}

// existing are the slices of this controller.
func (r *reconciler) existing() []*discoveryv1.EndpointSlice {
	return slices.DeleteFunc(r.slices.ByIndex(discovery.IndexService, key), func(s *discoveryv1.EndpointSlice) bool { return !ours(s) })
}

func (r *reconciler) write(ctx context.Context, c change) error {
	for _, s := range c.make {
		if _, err := r.slices.Create(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range c.put {
		if _, err := r.slices.Update(ctx, s); err != nil {
			return err
		}
	}
	for _, s := range c.drop {
		if err := r.slices.Delete(ctx, s); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

func ours(s *discoveryv1.EndpointSlice) bool {
	return s.Namespace == namespace && s.Labels[discoveryv1.LabelServiceName] == name && s.Labels[discoveryv1.LabelManagedBy] == managedBy
}

// servicePorts are those of the service: names, and for who counts what is asked, metrics.
var servicePorts = []corev1.ServicePort{
	{Name: "dns", Port: port, Protocol: corev1.ProtocolUDP, TargetPort: intstr.FromInt32(port)},
	{Name: "dns-tcp", Port: port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(port)},
	{Name: "metrics", Port: metricsPort, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(metricsPort)},
}

// service is how the cluster's DNS is found.
func (o *Options) service(dualStack bool) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS", "kubernetes.io/cluster-service": "true"},
		},
		Spec: corev1.ServiceSpec{
			ClusterIP: o.Address.String(), TrafficDistribution: ptr.To(corev1.ServiceTrafficDistributionPreferSameNode),
			Ports: servicePorts,
		},
	}
	if dualStack {
		svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
	}
	return svc
}

// sameNode says that a change of a node is none of its DNS.
func sameNode(before, after resource.Object) bool {
	b, hadDNS := serverOf(before.(*corev1.Node))
	a, hasDNS := serverOf(after.(*corev1.Node))
	return hadDNS == hasDNS && b.Node == a.Node && b.Lost == a.Lost && slices.Equal(b.Addresses, a.Addresses)
}

// server is a node that serves DNS.
type server struct {
	Node      string
	Addresses []netip.Addr // its ends of the pod network
	Lost      bool         // it has not been heard of for a while, or goes
}

// serverOf is the server that runs on a node; ok is false if there is none.
func serverOf(node *corev1.Node) (s server, ok bool) {
	if !version.Ours(node.Status.NodeInfo.KubeletVersion) {
		return s, false
	}
	s.Node, s.Lost = node.Name, node.DeletionTimestamp != nil
	for _, cidr := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(cidr); err == nil {
			s.Addresses = append(s.Addresses, podnet.Gateway(p))
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			s.Lost = true
		}
	}
	return s, len(s.Addresses) > 0
}
