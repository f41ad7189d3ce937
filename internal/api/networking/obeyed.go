package networking

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
)

// What the Ingresses are called that this program obeys itself.
const (
	// EdgeController is what their classes name as the controller.
	EdgeController = "kemudi.io/ingress"
	// EdgeClass is the class that is there from the first start.
	EdgeClass = "kemudi"
	// NginxClass is obeyed too, as long as no class of that name is another program's.
	NginxClass = "nginx"
	// EdgeService is the Service of kube-system that is there while an Ingress is obeyed: nodes
	// follow Services anyway, and begin to follow Ingresses when they see it.
	EdgeService = "kemudi-ingress"
)

// What nodes find by, in kube-system, of what they serve for Gateways.
const (
	// GatewayService is the Service that is there while a Gateway is served.
	GatewayService = "kemudi-gateways"
	// AnnotationGatewayTables of that Service names the Secrets with what edges are told, with commas between.
	AnnotationGatewayTables = "kemudi.io/gateway-tables"
	// GatewayTablePrefix begins the names of these Secrets. Every node may read them.
	GatewayTablePrefix = "kemudi-gateway-"
	// GatewayTableKey is the key in them.
	GatewayTableKey = "table"
)

// AnnotationPrefix begins the names of the annotations of ingress-nginx, which are obeyed here.
const AnnotationPrefix = "nginx.ingress.kubernetes.io/"

// AnnotationAuthSecret names the Secret of who may log in.
const AnnotationAuthSecret = AnnotationPrefix + "auth-secret"

// AnnotationProxySecret names the Secret of how the backends of an Ingress are known that speak TLS, and of what they are shown.
const AnnotationProxySecret = AnnotationPrefix + "proxy-ssl-secret"

// AnnotationClientSecret names the Secret with the authorities by which clients of an Ingress are known.
const AnnotationClientSecret = AnnotationPrefix + "auth-tls-secret"

// The indexes of Ingresses, by namespace/name of what they name.
const (
	IndexSecret  = "secret"
	IndexBackend = "backend" // services
)

// Classes are the IngressClasses as they are known.
type Classes interface {
	// Class returns the class of a name, or nil.
	Class(name string) *networkingv1.IngressClass
	// Default returns the class of Ingresses that name none, or nil.
	Default() *networkingv1.IngressClass
}

// Obeyed reports whether an Ingress is for this program. The annotation from before there
// was a field goes before the field, as it did elsewhere. Who names no class at all is obeyed where
// the default class is ours.
func Obeyed(i *networkingv1.Ingress, known Classes) bool {
	name, said := ClassOf(i)
	if !said {
		c := known.Default()
		return c != nil && c.Spec.Controller == EdgeController
	}
	if c := known.Class(name); c != nil {
		return c.Spec.Controller == EdgeController
	}
	return name == NginxClass || name == EdgeClass
}

// ClassOf is the class that an Ingress names; said is false if it names none.
func ClassOf(i *networkingv1.Ingress) (name string, said bool) {
	if name, ok := i.Annotations[classAnnotation]; ok {
		return name, true
	}
	if i.Spec.IngressClassName != nil {
		return *i.Spec.IngressClassName, true
	}
	return "", false
}

// SecretsOf are the names of the Secrets of its own namespace that an Ingress needs for its
// certificates, for those of its backends and its clients, and for who may log in, without repetition. Those of other namespaces are none of its business.
func SecretsOf(i *networkingv1.Ingress) (names []string) {
	add := func(name string) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for n := range i.Spec.TLS {
		add(i.Spec.TLS[n].SecretName)
	}
	for _, annotation := range []string{AnnotationAuthSecret, AnnotationClientSecret, AnnotationProxySecret} {
		if name, ok := SecretOf(i, annotation); ok {
			add(name)
		}
	}
	return names
}

// SecretOf is the name of the Secret that an annotation names; ok is false if there is none, or if it is
// one of another namespace.
func SecretOf(i *networkingv1.Ingress, annotation string) (name string, ok bool) {
	namespace, name, qualified := strings.Cut(strings.TrimSpace(i.Annotations[annotation]), "/")
	if !qualified {
		namespace, name = i.Namespace, namespace
	}
	return name, name != "" && namespace == i.Namespace
}

// secretKeys are the values of [IndexSecret].
func secretKeys(i *networkingv1.Ingress) (keys []string) {
	for _, name := range SecretsOf(i) {
		keys = append(keys, i.Namespace+"/"+name)
	}
	return keys
}

// backendKeys are the values of [IndexBackend].
func backendKeys(i *networkingv1.Ingress) (keys []string) {
	add := func(b *networkingv1.IngressBackend) {
		if b == nil || b.Service == nil {
			return
		}
		if key := i.Namespace + "/" + b.Service.Name; !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	add(i.Spec.DefaultBackend)
	for r := range i.Spec.Rules {
		if http := i.Spec.Rules[r].HTTP; http != nil {
			for p := range http.Paths {
				add(&http.Paths[p].Backend)
			}
		}
	}
	return keys
}

// TLSPair are the certificate chain and the key of a Secret, both in PEM; ok is false if one is
// missing.
func TLSPair(s *corev1.Secret) (chain, key []byte, ok bool) {
	chain, key = s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]
	return chain, key, len(chain) > 0 && len(key) > 0
}
