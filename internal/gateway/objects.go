package gateway

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// What the objects are called that belong to this program.
const (
	// ControllerName is what classes name that are obeyed here.
	ControllerName = "kemudi.io/gateway"
	// Class is the class that is made here.
	Class = "kemudi"
	// Group is that of all kinds.
	Group = gatewayv1.GroupName
)

// Objects are all that there is of the kinds of Gateways, and what else they name.
type Objects struct {
	Classes      []*gatewayv1.GatewayClass
	Gateways     []*gatewayv1.Gateway
	ListenerSets []*gatewayv1.ListenerSet
	HTTPRoutes   []*gatewayv1.HTTPRoute
	GRPCRoutes   []*gatewayv1.GRPCRoute
	TLSRoutes    []*gatewayv1.TLSRoute
	TCPRoutes    []*gatewayv1.TCPRoute
	UDPRoutes    []*gatewayv1.UDPRoute
	Policies     []*gatewayv1.BackendTLSPolicy
	Grants       []*gatewayv1.ReferenceGrant
	Cluster      Cluster
	// Bundle is the version of the definitions that are served; empty: they do not say it.
	Bundle string
}

// Cluster is what objects of Gateways name of others. What is not there is nil.
type Cluster interface {
	Namespace(name string) *corev1.Namespace
	Service(namespace, name string) *corev1.Service
	Secret(namespace, name string) *corev1.Secret
	ConfigMap(namespace, name string) *corev1.ConfigMap
	// Place is where a Gateway is reached, by its key.
	Place(gateway string) Place
}

// Place is where a Gateway is reached.
type Place struct {
	Ports     map[Port]uint16 // those of nodes at which edges take what is for its own
	Addresses []string        // at which clients reach it; none: it waits for one
	Refused   string          // why it does not get those that it wants; empty: nothing is wrong with them
	Waiting   string          // why it has none
}

// Port is a port of a Gateway: one number can be one of TCP and one of UDP.
type Port struct {
	Number int32
	UDP    bool
}

// Compare orders ports.
func (p Port) Compare(q Port) int {
	if p.Number == q.Number && p.UDP != q.UDP {
		if q.UDP {
			return -1
		}
		return 1
	}
	return cmp.Compare(p.Number, q.Number)
}

// Result is what objects come to. All maps are by namespace and name.
type Result struct {
	Classes      map[string]gatewayv1.GatewayClassStatus
	Gateways     map[string]*Gateway
	ListenerSets map[string]gatewayv1.ListenerSetStatus
	HTTPRoutes   map[string][]gatewayv1.RouteParentStatus // of parents that are ours
	GRPCRoutes   map[string][]gatewayv1.RouteParentStatus
	TLSRoutes    map[string][]gatewayv1.RouteParentStatus
	TCPRoutes    map[string][]gatewayv1.RouteParentStatus
	UDPRoutes    map[string][]gatewayv1.RouteParentStatus
	Policies     map[string][]gatewayv1.PolicyAncestorStatus
	// Used are the objects of [Cluster] that were looked for, by kind, namespace and name with slashes between.
	Used map[string]bool
}

// Gateway is what a Gateway comes to.
type Gateway struct {
	Object *gatewayv1.Gateway
	Status gatewayv1.GatewayStatus
	Ports  []Port // that its listeners want, in order
	Table  *Table
	Packed []byte // the table; nil: it has no doors, or is more than edges can be told
}

// Key is the key of an object.
func Key(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// older orders objects by age, then by name (W3).
func older(a, b metav1.Object) int {
	x, y := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(cmp.Compare(x.Unix(), y.Unix()), cmp.Compare(Key(a), Key(b)))
}

func ordered[T metav1.Object](list []T) []T {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int { return older(a, b) })
	return list
}

// looked notes which objects are looked for.
type looked struct {
	from Cluster
	used map[string]bool
}

func (l *looked) Namespace(name string) *corev1.Namespace {
	l.used["Namespace//"+name] = true
	return l.from.Namespace(name)
}

func (l *looked) Service(namespace, name string) *corev1.Service {
	l.used["Service/"+namespace+"/"+name] = true
	return l.from.Service(namespace, name)
}

func (l *looked) Secret(namespace, name string) *corev1.Secret {
	l.used["Secret/"+namespace+"/"+name] = true
	return l.from.Secret(namespace, name)
}

func (l *looked) ConfigMap(namespace, name string) *corev1.ConfigMap {
	l.used["ConfigMap/"+namespace+"/"+name] = true
	return l.from.ConfigMap(namespace, name)
}

func (l *looked) Place(gateway string) Place { return l.from.Place(gateway) }
