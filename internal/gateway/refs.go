package gateway

import (
	"crypto/tls"
	"crypto/x509"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// from is who names an object.
type from struct{ kind, namespace string }

// to is an object of another namespace, of the core's group.
type to struct{ kind, namespace, name string }

// granted says that an object may be named (W2).
func (c *compiler) granted(f from, t to) bool {
	if f.namespace == t.namespace {
		return true
	}
	for _, g := range c.grants[t.namespace] {
		if slices.ContainsFunc(g.Spec.From, func(x gatewayv1.ReferenceGrantFrom) bool {
			return x.Group == Group && string(x.Kind) == f.kind && string(x.Namespace) == f.namespace
		}) && slices.ContainsFunc(g.Spec.To, func(x gatewayv1.ReferenceGrantTo) bool {
			return (x.Group == "" || x.Group == "core") && string(x.Kind) == t.kind && (x.Name == nil || *x.Name == "" || string(*x.Name) == t.name)
		}) {
			return true
		}
	}
	return false
}

func core[G ~string](group *G) bool { return group == nil || *group == "" || *group == "core" }

// certificate is the key of a certificate that somebody names, and which is then in the table.
func (c *compiler) certificate(g *gateway, f from, r *gatewayv1.SecretObjectReference) (key string, _ *fault) {
	if !core(r.Group) || r.Kind != nil && *r.Kind != "Secret" {
		return "", faultf(gatewayv1.ListenerReasonInvalidCertificateRef, "a certificate is in a Secret, not in a %s of group %q", ptr.Deref(r.Kind, ""), ptr.Deref(r.Group, ""))
	}
	namespace, name := string(ptr.Deref(r.Namespace, gatewayv1.Namespace(f.namespace))), string(r.Name)
	if !c.granted(f, to{"Secret", namespace, name}) {
		return "", faultf(gatewayv1.ListenerReasonRefNotPermitted, "no ReferenceGrant of namespace %q lets a %s of namespace %q use Secret %q", namespace, f.kind, f.namespace, name)
	}
	s := c.known.Secret(namespace, name)
	if s == nil {
		return "", faultf(gatewayv1.ListenerReasonInvalidCertificateRef, "Secret %q does not exist in namespace %q", name, namespace)
	}
	chain, private, ok := networking.TLSPair(s)
	if !ok {
		return "", faultf(gatewayv1.ListenerReasonInvalidCertificateRef, "Secret %q has not both %s and %s", name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	if _, err := tls.X509KeyPair(chain, private); err != nil {
		return "", faultf(gatewayv1.ListenerReasonInvalidCertificateRef, "Secret %q: %v", name, err)
	}
	key = tablePrefix + namespace + "/" + name
	g.table.Certificates[key] = &route.Certificate{Chain: chain, Key: private}
	return key, nil
}

// caKey is the key of a ConfigMap that has certificates of authorities.
const caKey = "ca.crt"

// authorities are the certificates in a ConfigMap; ok is false if there are none that can be read.
func (c *compiler) authorities(namespace, name string) (pem []byte, why string) {
	m := c.known.ConfigMap(namespace, name)
	if m == nil {
		return nil, "ConfigMap " + name + " does not exist in namespace " + namespace
	}
	pem = []byte(m.Data[caKey])
	if len(pem) == 0 {
		pem = m.BinaryData[caKey]
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return nil, "ConfigMap " + name + " has no certificate in its key " + caKey
	}
	return append(pem, '\n'), ""
}
