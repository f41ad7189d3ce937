package ingress

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/ingress"
	"github.com/kemudi/kemudi/internal/resource"
)

// Status has the addresses of the nodes in the status of Ingresses that edges obey, and events
// of what of them is not obeyed.
var Status = controller.New(controller.Spec[*networkingv1.Ingress]{
	Name: "ingress-status-controller", Source: "ingress-controller",
	For: networking.Ingresses,
	Watches: []controller.Watch{
		{Def: core.Nodes.Def, Keys: every, Same: sameAddresses, Behind: true},
		{Def: networking.IngressClasses.Def, Keys: every, Behind: true},
		{Def: core.Services.Def, Keys: by(networking.IndexBackend), Same: samePorts},
		{Def: core.Secrets.Def, Keys: by(networking.IndexSecret)},
	},
	Reads:   []*resource.Def{discovery.EndpointSlices.Def},
	Writes:  []controller.Permission{controller.UpdateStatus(networking.Ingresses.Def)},
	Workers: 2,
	Setup: func(k *controller.Kit) controller.Reconciler[*networkingv1.Ingress] {
		known := &ingress.Cached{
			IngressClasses: controller.For(k, networking.IngressClasses).Reader, Services: controller.For(k, core.Services).Reader,
			EndpointSlices: controller.For(k, discovery.EndpointSlices).Reader,
		}
		secrets := controller.For(k, core.Secrets)
		known.Secrets = func(namespace, name string) *corev1.Secret {
			s, _ := secrets.Get(namespace, name)
			return s
		}
		s := &status{k: k, known: known, nodes: controller.For(k, core.Nodes), ingresses: controller.For(k, networking.Ingresses)}
		s.mu.told = map[string][]ingress.Problem{}
		return s
	},
})

// every wakes all Ingresses.
func every(k *controller.Kit, _ resource.Object) (keys []string) {
	for _, i := range controller.For(k, networking.Ingresses).List("", nil) {
		keys = append(keys, cache.Key(i.Namespace, i.Name))
	}
	return keys
}

// by wakes the Ingresses that name an object.
func by(index string) func(*controller.Kit, resource.Object) []string {
	return func(k *controller.Kit, obj resource.Object) (keys []string) {
		for _, i := range controller.For(k, networking.Ingresses).ByIndex(index, cache.Key(obj.GetNamespace(), obj.GetName())) {
			keys = append(keys, cache.Key(i.Namespace, i.Name))
		}
		return keys
	}
}

func sameAddresses(before, after resource.Object) bool {
	return slices.Equal(addressesOf(before.(*corev1.Node)), addressesOf(after.(*corev1.Node)))
}

func samePorts(before, after resource.Object) bool {
	b, a := before.(*corev1.Service), after.(*corev1.Service)
	return b.Spec.Type == a.Spec.Type && equality.Semantic.DeepEqual(b.Spec.Ports, a.Spec.Ports)
}

type status struct {
	k         *controller.Kit
	known     *ingress.Cached
	nodes     controller.Client[*corev1.Node]
	ingresses controller.Client[*networkingv1.Ingress]

	mu struct {
		sync.Mutex
		told map[string][]ingress.Problem // by key: what people have been told of
	}
}

var _ controller.Goner = (*status)(nil)

// Gone forgets an Ingress.
func (s *status) Gone(_ context.Context, key string) error {
	s.tell(key, nil)
	return nil
}

// tell notes what is wrong with an Ingress and returns what of it is new.
func (s *status) tell(key string, problems []ingress.Problem) (news []ingress.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range problems {
		if !slices.Contains(s.mu.told[key], p) {
			news = append(news, p)
		}
	}
	if len(problems) == 0 {
		delete(s.mu.told, key)
	} else {
		s.mu.told[key] = problems
	}
	return news
}

// Reconcile writes the addresses. Those of an Ingress that edges obey no more are taken back, if
// they are still what was written here.
func (s *status) Reconcile(ctx context.Context, i *networkingv1.Ingress) (controller.Next, error) {
	key := cache.Key(i.Namespace, i.Name)
	var want []networkingv1.IngressLoadBalancerIngress
	if networking.Obeyed(i, s.known) {
		for _, p := range s.tell(key, ingress.Compile(i, s.known).Problems) {
			s.k.Events.Event(i, corev1.EventTypeWarning, p.Reason, p.Message)
		}
		want = published(s.nodes.List("", nil))
	} else {
		s.tell(key, nil)
		if !s.wrote(i) {
			return controller.Done, nil
		}
	}
	if equality.Semantic.DeepEqual(want, i.Status.LoadBalancer.Ingress) {
		return controller.Done, nil
	}
	i = i.DeepCopy()
	i.Status.LoadBalancer.Ingress = want
	_, err := s.ingresses.UpdateStatus(ctx, i)
	return controller.Done, err
}

// wrote says that the addresses of an Ingress are from here: they are of nodes with edges, and
// no other program has written the status since.
func (s *status) wrote(i *networkingv1.Ingress) bool {
	if len(i.Status.LoadBalancer.Ingress) == 0 {
		return false
	}
	own := false
	for _, f := range i.ManagedFields {
		if f.Subresource == "status" {
			if f.Manager != manager {
				return false
			}
			own = true
		}
	}
	return own
}

// manager is the name by which the status is written.
const manager = "ingress-status-controller"

// mostNodes is how many nodes an Ingress shows: who resolves a name to them needs no more, and each
// of thousands of Ingresses has the list.
const mostNodes = 16

// published are the addresses at which edges are reached.
func published(nodes []*corev1.Node) (list []networkingv1.IngressLoadBalancerIngress) {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return len(addressesOf(n)) == 0 })
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range nodes[:min(len(nodes), mostNodes)] {
		for _, a := range addressesOf(n) {
			list = append(list, networkingv1.IngressLoadBalancerIngress{IP: a})
		}
	}
	return list
}

// addressesOf are those at which a node's edge is reached from outside; none, if it has no edge or
// is not to be used.
func addressesOf(n *corev1.Node) (list []string) {
	_, excluded := n.Labels[corev1.LabelNodeExcludeBalancers]
	if !hasEdge(n) || n.DeletionTimestamp != nil || excluded || !core.NodeIsReady(n) {
		return nil
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		for _, a := range n.Status.Addresses {
			if a.Type == kind && strings.TrimSpace(a.Address) != "" && !slices.Contains(list, a.Address) {
				list = append(list, a.Address)
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
}
