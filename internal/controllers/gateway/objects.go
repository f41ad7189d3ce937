package gateway

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/resource"
)

type discoverySlice = discoveryv1.EndpointSlice

// decoded is an object as it was read of its JSON.
type decoded struct {
	uid     types.UID
	version string
	object  metav1.Object
	seen    bool
}

// objects are all that there is.
func (r *reconciler) objects(defs map[string]*resource.Def) gateway.Objects {
	for _, d := range r.read {
		d.seen = false
	}
	o := gateway.Objects{
		Classes: all[gatewayv1.GatewayClass](r, defs["gatewayclasses"]), Gateways: all[gatewayv1.Gateway](r, defs["gateways"]), ListenerSets: all[gatewayv1.ListenerSet](r, defs["listenersets"]),
		HTTPRoutes: all[gatewayv1.HTTPRoute](r, defs["httproutes"]), GRPCRoutes: all[gatewayv1.GRPCRoute](r, defs["grpcroutes"]),
		TLSRoutes: all[gatewayv1.TLSRoute](r, defs["tlsroutes"]), TCPRoutes: all[gatewayv1.TCPRoute](r, defs["tcproutes"]),
		UDPRoutes: all[gatewayv1.UDPRoute](r, defs["udproutes"]),
		Policies:  all[gatewayv1.BackendTLSPolicy](r, defs["backendtlspolicies"]), Grants: all[gatewayv1.ReferenceGrant](r, defs["referencegrants"]),
		Cluster: r,
	}
	if crd, there := r.crds.Get("", "gatewayclasses."+gateway.Group); there {
		o.Bundle = crd.Annotations[gateway.AnnotationBundle]
	}
	for key, d := range r.read {
		if !d.seen {
			delete(r.read, key)
		}
	}
	return o
}

// all are the objects of a kind; none, if it is not served.
func all[T any, P interface {
	*T
	metav1.Object
}](r *reconciler, def *resource.Def) (list []P) {
	if def == nil {
		return nil
	}
	c := r.k.Transport().Cache(def, "")
	if c == nil {
		return nil
	}
	for _, it := range c.List("", nil) {
		o, ok := it.Object.(*custom.Object)
		if !ok || o.DeletionTimestamp != nil {
			continue
		}
		key := def.Plural + "/" + it.Key
		d := r.read[key]
		if d == nil || d.uid != o.UID || d.version != o.ResourceVersion {
			into := P(new(T))
			if err := gateway.Decode(o, into); err != nil {
				r.k.Logger.Warn("object cannot be read", "kind", def.Kind, "key", it.Key, "err", err)
				continue
			}
			d = &decoded{uid: o.UID, version: o.ResourceVersion, object: into}
			r.read[key] = d
		}
		d.seen = true
		list = append(list, d.object.(P))
	}
	return list
}

// class makes the class that is obeyed here, once a node has an edge.
func (r *reconciler) class(ctx context.Context, defs map[string]*resource.Def, o *gateway.Objects) error {
	def := defs["gatewayclasses"]
	if def == nil || slices.ContainsFunc(o.Classes, func(c *gatewayv1.GatewayClass) bool { return c.Name == gateway.Class }) || !slices.ContainsFunc(r.nodes.List("", nil), hasEdge) {
		return nil
	}
	obj, err := custom.FromTree(map[string]any{
		"apiVersion": gateway.Group + "/" + def.Version, "kind": "GatewayClass", "metadata": map[string]any{"name": gateway.Class},
		"spec": map[string]any{"controllerName": gateway.ControllerName, "description": "Gateways that the edges of Kemudi's nodes serve"},
	})
	if err != nil {
		return err
	}
	_, err = r.k.Transport().Do(ctx, &client.Request{Verb: "create", Def: def, Name: gateway.Class, Object: obj})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var _ gateway.Cluster = (*reconciler)(nil)

// Namespace returns a namespace.
func (r *reconciler) Namespace(name string) *corev1.Namespace {
	n, _ := r.namespaces.Get("", name)
	return n
}

// Service returns a Service.
func (r *reconciler) Service(namespace, name string) *corev1.Service {
	s, _ := r.services.Get(namespace, name)
	return s
}

// Secret returns a Secret.
func (r *reconciler) Secret(namespace, name string) *corev1.Secret {
	s, _ := r.secrets.Get(namespace, name)
	return s
}

// ConfigMap returns a ConfigMap.
func (r *reconciler) ConfigMap(namespace, name string) *corev1.ConfigMap {
	m, _ := r.configMaps.Get(namespace, name)
	return m
}

// Place is where a Gateway is reached: what its Service says.
func (r *reconciler) Place(key string) (p gateway.Place) {
	d := r.read["gateways/"+key]
	if d == nil {
		return p
	}
	g := d.object.(*gatewayv1.Gateway)
	name := serviceName(g)
	svc, there := r.services.Get(g.Namespace, name)
	if !there {
		return p
	}
	if !metav1.IsControlledBy(svc, g) {
		p.Waiting = fmt.Sprintf("Service %q, by which it is to be reached, is there already and is another's", name)
		return p
	}
	p.Ports = map[gateway.Port]uint16{}
	for i := range svc.Spec.Ports {
		p.Ports[portOf(&svc.Spec.Ports[i])] = uint16(svc.Spec.Ports[i].NodePort)
	}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			p.Addresses = append(p.Addresses, in.IP)
		}
	}
	if c := core.ServiceBalanced(svc); c != nil && c.Status != metav1.ConditionTrue {
		p.Waiting = c.Message
	}
	if wanted := staticAddresses(g); len(wanted) > 0 {
		for _, a := range wanted {
			if !slices.Contains(p.Addresses, a) {
				p.Refused = fmt.Sprintf("address %s cannot be used: %s", a, p.Waiting)
			}
		}
	}
	return p
}

// addressesOf are those at which a node's edge takes what is for Gateways, in each family one; none, if it has no
// edge or is not ready.
func addressesOf(n *corev1.Node) (list []string) {
	if !hasEdge(n) || n.DeletionTimestamp != nil || !core.NodeIsReady(n) {
		return nil
	}
	have := map[bool]bool{}
	for _, a := range n.Status.Addresses {
		ip, err := netip.ParseAddr(a.Address)
		if a.Type == corev1.NodeInternalIP && err == nil && !have[ip.Is4()] {
			have[ip.Is4()] = true
			list = append(list, ip.String())
		}
	}
	return list
}
