package cloud

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// wants says that a service is to have a balancer of the cloud: one with a class is somebody
// else's.
func wants(svc *corev1.Service) bool {
	return svc.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.Spec.LoadBalancerClass == nil
}

// leaves says that a service has had a balancer, and is to have none any more.
func leaves(svc *corev1.Service) bool {
	return slices.Contains(svc.Finalizers, core.FinalizerBalancer) && (svc.DeletionTimestamp != nil || svc.Spec.Type != corev1.ServiceTypeLoadBalancer)
}

// sameBalancer says that a change of a service is none of its balancer.
func sameBalancer(a, b *corev1.Service) bool {
	x, y := &a.Spec, &b.Spec
	return a.UID == b.UID && wants(a) == wants(b) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.EqualFunc(x.Ports, y.Ports, samePort) &&
		slices.Equal(x.LoadBalancerSourceRanges, y.LoadBalancerSourceRanges) && x.LoadBalancerIP == y.LoadBalancerIP &&
		slices.Equal(x.ExternalIPs, y.ExternalIPs) && len(x.IPFamilies) == len(y.IPFamilies) &&
		x.SessionAffinity == y.SessionAffinity && equality.Semantic.DeepEqual(x.SessionAffinityConfig, y.SessionAffinityConfig) &&
		x.ExternalTrafficPolicy == y.ExternalTrafficPolicy && x.HealthCheckNodePort == y.HealthCheckNodePort
}

func samePort(a, b corev1.ServicePort) bool {
	return a.Name == b.Name && a.Protocol == b.Protocol && a.Port == b.Port && a.NodePort == b.NodePort && a.TargetPort == b.TargetPort &&
		ptr.Equal(a.AppProtocol, b.AppProtocol)
}

// sameIngress says that two states of a balancer are one; what is not said of an address is as
// the API understands it.
func sameIngress(a, b []corev1.LoadBalancerIngress) bool {
	return slices.EqualFunc(a, b, func(x, y corev1.LoadBalancerIngress) bool {
		return x.IP == y.IP && x.Hostname == y.Hostname && modeOf(x) == modeOf(y) && equality.Semantic.DeepEqual(x.Ports, y.Ports)
	})
}

func modeOf(in corev1.LoadBalancerIngress) corev1.LoadBalancerIPMode {
	if in.IP == "" {
		return ""
	}
	return ptr.Deref(in.IPMode, corev1.LoadBalancerIPModeVIP)
}

// machine is what of a node matters to a balancer.
type machine struct{ name, id string }

// targets are the nodes that balancers may lead to, as all services have them: a change of one node
// is one for each service, and they are looked for once. It may be used concurrently.
type targets struct {
	mu struct {
		sync.Mutex
		rev      int64 // of the nodes that these were found among
		nodes    []*corev1.Node
		machines []machine
	}
}

// of are those of the nodes that balancers may lead to, by name: shared, and read-only.
func (s *targets) of(nodes client.Reader[*corev1.Node]) ([]*corev1.Node, []machine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := nodes.Snapshot()
	if s.mu.rev == all.Rev && s.mu.nodes != nil {
		return s.mu.nodes, s.mu.machines
	}
	s.mu.rev, s.mu.nodes, s.mu.machines = all.Rev, []*corev1.Node{}, nil
	all.Scan("", "", func(it *cache.Item) bool {
		if n := it.Object.(*corev1.Node); core.BalancersServe(n) {
			s.mu.nodes, s.mu.machines = append(s.mu.nodes, n), append(s.mu.machines, machine{n.Name, n.Spec.ProviderID})
		}
		return true
	})
	return s.mu.nodes, s.mu.machines
}

// shown is how many nodes an event names.
const shown = 20

// shortNames are the names of nodes for an event.
func shortNames(nodes []*corev1.Node) (out []string) {
	for _, n := range nodes[:min(shown, len(nodes))] {
		out = append(out, n.Name)
	}
	if more := len(nodes) - shown; more > 0 {
		out = append(out, fmt.Sprintf("<%d more>", more))
	}
	return out
}
