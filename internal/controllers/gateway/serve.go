package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/gateway"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	manager        = "kemudi-gateway-controller"
	// annotationAddresses has a Service get the addresses that a Gateway names.
	annotationAddresses = "kemudi.io/load-balancer-addresses"
	longestLabel        = 63
)

// staticAddresses are those that a Gateway is to have.
func staticAddresses(g *gatewayv1.Gateway) (list []string) {
	for _, a := range g.Spec.Addresses {
		if a.Value != "" && ptr.Deref(a.Type, gatewayv1.IPAddressType) == gatewayv1.IPAddressType {
			list = append(list, a.Value)
		}
	}
	return list
}

// short is a name that fits where names of Services and labels do.
func short(name string) string {
	if len(name) <= longestLabel && !strings.Contains(name, ".") {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(strings.ReplaceAll(name[:min(len(name), longestLabel-11)], ".", "-"), "-") + "-" + hex.EncodeToString(sum[:5])
}

// serviceName is that of the Service by which a Gateway is reached.
func serviceName(g *gatewayv1.Gateway) string {
	name := g.Name + "-" + string(g.Spec.GatewayClassName)
	if c := name[0]; c < 'a' || c > 'z' {
		name = "gw-" + name
	}
	return short(name)
}

// serve has Gateways reached, and edges told.
func (r *reconciler) serve(ctx context.Context, out *gateway.Result) error {
	var errs []error
	var tables []string
	for _, key := range slices.Sorted(maps.Keys(out.Gateways)) {
		g := out.Gateways[key]
		err := r.reach(ctx, g)
		if err == nil && len(g.Table.Doors) > 0 {
			name := networking.GatewayTablePrefix + string(g.Object.UID)
			was, there := r.secrets.Get(metav1.NamespaceSystem, name)
			if g.Packed != nil {
				err = r.table(ctx, name, g, was)
			}
			if there || g.Packed != nil { // the last one stays in force when the next is too much
				tables = append(tables, name)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("serve Gateway %s: %w", key, err))
		}
	}
	if err := r.marker(ctx, tables); err != nil {
		errs = append(errs, err)
	}
	mine := labels.SelectorFromSet(labels.Set{labelManagedBy: manager})
	for _, s := range r.secrets.List(metav1.NamespaceSystem, mine) {
		if strings.HasPrefix(s.Name, networking.GatewayTablePrefix) && !slices.Contains(tables, s.Name) {
			errs = append(errs, gone(r.secrets.Delete(ctx, s)))
		}
	}
	return errors.Join(errs...)
}

func gone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// marker keeps the Service by which nodes know that there are Gateways, and which Secrets say what.
func (r *reconciler) marker(ctx context.Context, tables []string) error {
	svc, there := r.services.Get(metav1.NamespaceSystem, networking.GatewayService)
	said := strings.Join(tables, ",")
	switch {
	case len(tables) == 0 && there:
		return gone(r.services.Delete(ctx, svc))
	case len(tables) == 0 || there && svc.Annotations[networking.AnnotationGatewayTables] == said:
		return nil
	case there:
		svc = svc.DeepCopy()
		metav1.SetMetaDataAnnotation(&svc.ObjectMeta, networking.AnnotationGatewayTables, said)
		_, err := r.services.Update(ctx, svc)
		return err
	}
	_, err := r.services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: networking.GatewayService, Annotations: map[string]string{networking.AnnotationGatewayTables: said},
			Labels: map[string]string{"kubernetes.io/cluster-service": "true", labelManagedBy: manager},
		},
		Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "any", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(80)}}},
	})
	return gone(err)
}

// table keeps the Secret with what edges are told of a Gateway; it was nil, if there was none.
func (r *reconciler) table(ctx context.Context, name string, g *gateway.Gateway, was *corev1.Secret) error {
	switch {
	case was != nil && bytes.Equal(was.Data[networking.GatewayTableKey], g.Packed):
		return nil
	case was != nil:
		fresh := was.DeepCopy()
		fresh.Data = map[string][]byte{networking.GatewayTableKey: g.Packed}
		_, err := r.secrets.Update(ctx, fresh)
		return err
	}
	_, err := r.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceSystem, Name: name, Labels: map[string]string{labelManagedBy: manager},
			Annotations: map[string]string{"kemudi.io/gateway": gateway.Key(g.Object)},
		},
		Type: "kemudi.io/gateway-table", Data: map[string][]byte{networking.GatewayTableKey: g.Packed},
	})
	return gone(err)
}

// reach keeps the Service by which clients reach a Gateway, and its endpoints, which are the nodes.
func (r *reconciler) reach(ctx context.Context, g *gateway.Gateway) error {
	o := g.Object
	was, there := r.services.Get(o.Namespace, serviceName(o))
	switch {
	case there && !metav1.IsControlledBy(was, o):
		return nil // the status says so
	case len(g.Ports) == 0 && there:
		return gone(r.services.Delete(ctx, was))
	case len(g.Ports) == 0:
		return nil
	case !there:
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: serviceName(o), OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: o.Name, UID: o.UID, Controller: ptr.To(true),
		}}}}
		r.shape(svc, g)
		svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicyPreferDualStack)
		_, err := r.services.Create(ctx, svc)
		return gone(err)
	}
	fresh := was.DeepCopy()
	r.shape(fresh, g)
	if !equality.Semantic.DeepEqual(fresh, was) {
		now, err := r.services.Update(ctx, fresh)
		if err != nil {
			return err
		}
		fresh = now
	}
	return r.endpoints(ctx, fresh)
}

// shape has a Service be as its Gateway wants it.
func (r *reconciler) shape(svc *corev1.Service, g *gateway.Gateway) {
	o := g.Object
	set := func(m *map[string]string, key, value string) {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = value
	}
	if i := o.Spec.Infrastructure; i != nil {
		for k, v := range i.Labels {
			set(&svc.Labels, string(k), string(v))
		}
		for k, v := range i.Annotations {
			set(&svc.Annotations, string(k), string(v))
		}
	}
	set(&svc.Labels, labelManagedBy, manager)
	set(&svc.Labels, gatewayv1.GatewayNameLabelKey, short(o.Name))
	set(&svc.Labels, gatewayv1.GatewayClassNameLabelKey, short(string(o.Spec.GatewayClassName)))
	if wanted := staticAddresses(o); len(wanted) > 0 {
		set(&svc.Annotations, annotationAddresses, strings.Join(wanted, ","))
	} else {
		delete(svc.Annotations, annotationAddresses)
	}
	svc.Spec.Type, svc.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	var ports []corev1.ServicePort
	for _, port := range g.Ports {
		i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return portOf(&p) == port })
		if i >= 0 {
			ports = append(ports, svc.Spec.Ports[i])
			continue
		}
		p := corev1.ServicePort{Name: fmt.Sprintf("port-%d", port.Number), Port: port.Number, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(port.Number)}
		if port.UDP {
			p.Name, p.Protocol = p.Name+"-udp", corev1.ProtocolUDP
		}
		ports = append(ports, p)
	}
	svc.Spec.Ports = ports
}

func portOf(p *corev1.ServicePort) gateway.Port {
	return gateway.Port{Number: p.Port, UDP: p.Protocol == corev1.ProtocolUDP}
}

// endpoints keeps the slices of a Gateway's Service: the nodes, at the ports where edges take what is for it.
func (r *reconciler) endpoints(ctx context.Context, svc *corev1.Service) error {
	var errs []error
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		name := short(svc.Name + "-" + strings.ToLower(string(family)))
		was, there := r.slices.Get(svc.Namespace, name)
		if !slices.Contains(svc.Spec.IPFamilies, corev1.IPFamily(family)) {
			if there && was.Labels[labelManagedBy] == manager {
				errs = append(errs, gone(r.slices.Delete(ctx, was)))
			}
			continue
		}
		want := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: svc.Namespace, Name: name,
				Labels:          map[string]string{discoveryv1.LabelServiceName: svc.Name, discoveryv1.LabelManagedBy: manager, labelManagedBy: manager},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID, Controller: ptr.To(true)}},
			},
			AddressType: family, Endpoints: r.edges(family),
		}
		for i := range svc.Spec.Ports {
			p := &svc.Spec.Ports[i]
			want.Ports = append(want.Ports, discoveryv1.EndpointPort{Name: &p.Name, Port: &p.NodePort, Protocol: &p.Protocol})
		}
		switch {
		case !there:
			_, err := r.slices.Create(ctx, want)
			errs = append(errs, gone(err))
		case !equality.Semantic.DeepEqual(was.Endpoints, want.Endpoints) || !equality.Semantic.DeepEqual(was.Ports, want.Ports) || !equality.Semantic.DeepEqual(was.Labels, want.Labels):
			fresh := was.DeepCopy()
			fresh.Endpoints, fresh.Ports, fresh.Labels = want.Endpoints, want.Ports, want.Labels
			_, err := r.slices.Update(ctx, fresh)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// edges are the nodes with edges, as endpoints.
func (r *reconciler) edges(family discoveryv1.AddressType) (list []discoveryv1.Endpoint) {
	nodes := slices.Clone(r.nodes.List("", nil))
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(cache.Key("", a.Name), cache.Key("", b.Name)) })
	for _, n := range nodes {
		for _, text := range addressesOf(n) {
			a, err := netip.ParseAddr(text)
			if err != nil || a.Is4() != (family == discoveryv1.AddressTypeIPv4) {
				continue
			}
			list = append(list, discoveryv1.Endpoint{
				Addresses: []string{text}, NodeName: ptr.To(n.Name),
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			})
		}
	}
	return list
}
