package networking

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// Ingresses say how HTTP from outside the cluster finds Services. What is checked is
// in ingress_validate.go, the versions before v1 in ingress_legacy.go.
var Ingresses = resource.Define(resource.Spec[*networkingv1.Ingress]{
	Names: resource.Names{
		Group: "networking.k8s.io", Version: "v1", Kind: "Ingress", Plural: "ingresses", Short: []string{"ing"}, Namespaced: true, StoragePrefix: "ingress",
	},
	HasGeneration: true,
	Index:         map[string]func(*networkingv1.Ingress) []string{IndexSecret: secretKeys, IndexBackend: backendKeys},
	Prepare: func(obj, old *networkingv1.Ingress) {
		obj.Status = networkingv1.IngressStatus{}
		if old != nil {
			obj.Status = old.Status
		}
	},
	Validate: func(obj, old *networkingv1.Ingress, errs *resource.Errors) {
		validateIngress(obj, old, errs, namesOfV1)
	},
	Warn: func(obj, old *networkingv1.Ingress) []string {
		if _, ok := obj.Annotations[classAnnotation]; ok && old == nil && obj.Spec.IngressClassName == nil {
			return []string{`annotation "kubernetes.io/ingress.class" is deprecated, please use 'spec.ingressClassName' instead`}
		}
		return nil
	},
	Columns: []resource.Column[*networkingv1.Ingress]{
		{Name: "Class", Description: "The name of the IngressClass resource that should be used for additional configuration", Value: func(i *networkingv1.Ingress) any {
			return ptr.Deref(i.Spec.IngressClassName, "<none>")
		}},
		{Name: "Hosts", Description: "Hosts that incoming requests are matched against before the ingress rule", Value: func(i *networkingv1.Ingress) any {
			return hostsText(i.Spec.Rules)
		}},
		{Name: "Address", Description: "Address is a list containing ingress points for the load-balancer", Value: func(i *networkingv1.Ingress) any {
			return addressText(i.Status.LoadBalancer.Ingress)
		}},
		{Name: "Ports", Description: "Ports of TLS configurations that open", Value: func(i *networkingv1.Ingress) any {
			if len(i.Spec.TLS) > 0 {
				return "80, 443"
			}
			return "80"
		}},
	},
	Sub:      []resource.Sub[*networkingv1.Ingress]{{Name: "status", Merge: func(obj, old *networkingv1.Ingress) { obj.Spec = old.Spec }, Validate: validateIngressStatus}},
	Versions: ingressVersions,
})

// classAnnotation named the class of an Ingress before there was a field for it.
const classAnnotation = "kubernetes.io/ingress.class"

// HasClass reports whether an Ingress says which class it is of, by the field or by
// the annotation from before.
func HasClass(i *networkingv1.Ingress) bool {
	_, annotated := i.Annotations[classAnnotation]
	return annotated || i.Spec.IngressClassName != nil
}

// hostsText lists the first three hosts of the rules.
func hostsText(rules []networkingv1.IngressRule) string {
	const most = 3
	var list []string
	more := false
	for i := range rules {
		more = more || len(list) == most
		if !more && rules[i].Host != "" {
			list = append(list, rules[i].Host)
		}
	}
	switch {
	case len(list) == 0:
		return "*"
	case more:
		return fmt.Sprintf("%s + %d more...", strings.Join(list, ","), len(rules)-most)
	}
	return strings.Join(list, ",")
}

// addressText lists the addresses, or the names of what has none, in order.
func addressText(points []networkingv1.IngressLoadBalancerIngress) string {
	found := map[string]bool{}
	for i := range points {
		if p := &points[i]; p.IP != "" {
			found[p.IP] = true
		} else if p.Hostname != "" {
			found[p.Hostname] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), ",")
}
