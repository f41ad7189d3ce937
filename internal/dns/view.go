package dns

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/corefile"
)

// cached is the view over a process's caches.
type cached struct {
	namespaces client.Reader[*corev1.Namespace]
	services   client.Reader[*corev1.Service]
	slices     client.Reader[*discoveryv1.EndpointSlice]
	pods       client.Reader[*corev1.Pod] // of the node
	node       string
	// corefiles and settings hold one config map each, at most.
	corefiles, settings client.Reader[*corev1.ConfigMap]
}

var _ View = (*cached)(nil)

func newView(t client.Transport, node string) *cached {
	named := func(name string) client.Reader[*corev1.ConfigMap] {
		return client.Cached(t, core.ConfigMaps, "metadata.namespace="+metav1.NamespaceSystem+",metadata.name="+name)
	}
	return &cached{
		namespaces: client.Cached(t, core.Namespaces, ""), services: client.Cached(t, core.Services, ""),
		slices: client.Cached(t, discovery.EndpointSlices, ""),
		pods:   client.Cached(t, core.Pods, nodeField+"="+node), node: node,
		corefiles: named(corefile.ConfigMap), settings: named(settingsName),
	}
}

// nodeField is the field, and the index, that says on which node a pod is.
const nodeField = "spec.nodeName"

// synced are what must be complete before anything is answered: a name that is
// only not known yet must not be denied.
func (v *cached) synced() []<-chan struct{} {
	return []<-chan struct{}{v.namespaces.Synced(), v.services.Synced(), v.slices.Synced(), v.corefiles.Synced(), v.settings.Synced()}
}

func (v *cached) Namespace(name string) *corev1.Namespace {
	ns, _ := v.namespaces.Get("", name)
	return ns
}

func (v *cached) Service(namespace, name string) *corev1.Service {
	svc, _ := v.services.Get(namespace, name)
	return svc
}

func (v *cached) Services() []*corev1.Service { return v.services.List("", nil) }

// serial tells apart what the zone was at different times. It grows with each change of a service or of
// endpoints, at times without one, and is nearly the same on all nodes: the revisions are the API's.
func (v *cached) serial() uint32 { return uint32(v.services.Rev() + v.slices.Rev()) }

func (v *cached) Slices(svc *corev1.Service) []*discoveryv1.EndpointSlice {
	return v.slices.ByIndex(discovery.IndexService, cache.Key(svc.Namespace, svc.Name))
}

func (v *cached) ByAddress(ip netip.Addr) []Owner {
	for _, svc := range v.services.ByIndex(core.IndexClusterIP, ip.String()) {
		return []Owner{{Service: svc}}
	}
	var found []Owner
	for _, s := range v.slices.ByIndex(discovery.IndexAddress, ip.String()) {
		svc := v.Service(s.Namespace, s.Labels[discoveryv1.LabelServiceName])
		if svc == nil {
			continue
		}
		for i := range s.Endpoints {
			if slices.Contains(s.Endpoints[i].Addresses, ip.String()) {
				found = append(found, Owner{svc, &s.Endpoints[i]})
			}
		}
	}
	return found
}

// PodsAt looks at the pods of the node. Those that have ended have no address any more.
func (v *cached) PodsAt(ip netip.Addr) (found []*corev1.Pod) {
	for _, p := range v.pods.ByIndex(nodeField, v.node) {
		if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		if slices.ContainsFunc(p.Status.PodIPs, func(a corev1.PodIP) bool { return a.IP == ip.String() }) {
			found = append(found, p)
		}
	}
	return found
}
