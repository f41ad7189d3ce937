package ingress

import (
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/edge/route"
)

// Objects are what an Ingress refers to, as far as it is known. What is not there is nil.
type Objects interface {
	networking.Classes
	Service(namespace, name string) *corev1.Service
	Slices(namespace, service string) []*discoveryv1.EndpointSlice
	Secret(namespace, name string) *corev1.Secret
}

// Problem is something of an Ingress that is not obeyed. The rest of it is.
type Problem struct {
	Reason  string // of the event that tells of it
	Message string
}

// The reasons of problems.
const (
	ReasonBackend    = "BackendNotFound"
	ReasonTLS        = "BadCertificate"
	ReasonAnnotation = "AnnotationNotObeyed"
	ReasonPath       = "BadPath"
)

// Compiled is what an Ingress comes to.
type Compiled struct {
	Site      *route.Site
	Upstreams []Upstream // that its rules name, without repetition
	Secrets   []string   // keys of the Secrets that it names, whether or not they are there
	Problems  []Problem
}

// Upstream is a port of a service, as Ingresses name it.
type Upstream struct {
	Namespace, Service string
	Port               networkingv1.ServiceBackendPort
	UDP                bool // it is a port of UDP
}

// Key is the upstream's in tables.
func (u Upstream) Key() string {
	port := u.Port.Name
	if port == "" {
		port = strconv.Itoa(int(u.Port.Number))
	}
	return u.Namespace + "/" + u.Service + ":" + port
}

// Compile makes the site of an Ingress that is obeyed.
func Compile(i *networkingv1.Ingress, known Objects) *Compiled {
	c := &compiler{i: i, known: known, out: &Compiled{Site: &route.Site{Key: i.Namespace + "/" + i.Name, Created: i.CreationTimestamp.Unix()}}}
	c.annotations()
	for n := range i.Spec.Rules {
		c.rule(&i.Spec.Rules[n])
	}
	if i.Spec.DefaultBackend != nil {
		c.out.Site.Default = c.backend(i.Spec.DefaultBackend, "spec.defaultBackend")
	}
	for n := range i.Spec.TLS {
		c.tls(&i.Spec.TLS[n], n)
	}
	if networking.WantsACME(i) {
		c.out.Site.Account = i.Annotations[networking.AnnotationACMEAccount]
	}
	for _, name := range networking.SecretsOf(i) {
		c.out.Secrets = append(c.out.Secrets, i.Namespace+"/"+name)
	}
	return c.out
}

type compiler struct {
	i     *networkingv1.Ingress
	known Objects
	out   *Compiled

	regex, canary, cors, sticky, basic bool // what the annotations ask for: the paths are expressions, and so on
	verifies, asks                     bool // likewise: backends must be known by certificates, and are asked for by a name
	unproved                           bool // how clients are to be known cannot be had
}

func (c *compiler) problem(reason, format string, args ...any) {
	p := Problem{reason, fmt.Sprintf(format, args...)}
	if !slices.Contains(c.out.Problems, p) {
		c.out.Problems = append(c.out.Problems, p)
	}
}

func (c *compiler) rule(r *networkingv1.IngressRule) {
	host := strings.ToLower(r.Host)
	if r.HTTP == nil || len(r.HTTP.Paths) == 0 {
		// A host alone is there for the default backend.
		if d := c.i.Spec.DefaultBackend; d != nil {
			c.out.Site.Rules = append(c.out.Site.Rules, route.Rule{Host: host, Type: route.Prefix, Upstream: c.backend(d, "spec.defaultBackend")})
		}
		return
	}
	for n := range r.HTTP.Paths {
		p := &r.HTTP.Paths[n]
		kind := route.Prefix
		switch t := ptr.Deref(p.PathType, networkingv1.PathTypeImplementationSpecific); {
		case t == networkingv1.PathTypeExact:
			kind = route.Exact
		case c.regex:
			kind = route.Regex
			if _, err := route.Compile(p.Path); err != nil {
				c.problem(ReasonPath, "path %q of host %q is no expression that can be used: %v", p.Path, r.Host, err)
				continue
			}
		}
		rule := route.Rule{Host: host, Path: p.Path, Type: kind, Upstream: c.backend(&p.Backend, "path "+strconv.Quote(p.Path)+" of host "+strconv.Quote(r.Host))}
		c.out.Site.Rules = append(c.out.Site.Rules, rule)
	}
}

// backend returns the key of a backend's upstream; empty: it has none.
func (c *compiler) backend(b *networkingv1.IngressBackend, where string) string {
	if b.Service == nil {
		c.problem(ReasonBackend, "the backend of %s is not a service: it is answered by 503", where)
		return ""
	}
	u := Upstream{Namespace: c.i.Namespace, Service: b.Service.Name, Port: b.Service.Port}
	if !slices.Contains(c.out.Upstreams, u) {
		c.out.Upstreams = append(c.out.Upstreams, u)
	}
	svc := c.known.Service(u.Namespace, u.Service)
	switch {
	case svc == nil:
		c.problem(ReasonBackend, "service %q of %s does not exist", u.Service, where)
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		c.problem(ReasonBackend, "service %q of %s is of type ExternalName, to which nothing is forwarded", u.Service, where)
	case u.port(svc) == nil:
		c.problem(ReasonBackend, "service %q of %s has no port %s", u.Service, where, cmpPort(u.Port))
	}
	return u.Key()
}

func cmpPort(p networkingv1.ServiceBackendPort) string {
	if p.Name != "" {
		return strconv.Quote(p.Name)
	}
	return strconv.Itoa(int(p.Number))
}

// port is the upstream's port of its service, or nil.
func (u Upstream) port(svc *corev1.Service) *corev1.ServicePort {
	for n := range svc.Spec.Ports {
		p := &svc.Spec.Ports[n]
		if (p.Protocol == corev1.ProtocolUDP) != u.UDP || p.Protocol == corev1.ProtocolSCTP {
			continue
		}
		if u.Port.Name != "" && p.Name == u.Port.Name || u.Port.Name == "" && p.Port == u.Port.Number {
			return p
		}
	}
	return nil
}

func (c *compiler) tls(t *networkingv1.IngressTLS, n int) {
	out := route.TLS{}
	for _, h := range t.Hosts {
		out.Hosts = append(out.Hosts, strings.ToLower(h))
	}
	if t.SecretName != "" {
		s := c.known.Secret(c.i.Namespace, t.SecretName)
		if s == nil {
			c.problem(ReasonTLS, "secret %q of spec.tls[%d] does not exist", t.SecretName, n)
		} else if _, err := Certificate(s); err != nil {
			c.problem(ReasonTLS, "secret %q of spec.tls[%d]: %v", t.SecretName, n, err)
		} else {
			out.Certificate = c.i.Namespace + "/" + t.SecretName
		}
	}
	c.out.Site.TLS = append(c.out.Site.TLS, out)
}

// Certificate is the certificate in a Secret.
func Certificate(s *corev1.Secret) (*route.Certificate, error) {
	chain, key, ok := networking.TLSPair(s)
	if !ok {
		return nil, fmt.Errorf("it has not both %s and %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	if _, err := tls.X509KeyPair(chain, key); err != nil {
		return nil, err
	}
	return &route.Certificate{Chain: chain, Key: key}, nil
}

// Endpoints are the addresses of an upstream, in order. Those that are ready serve; where none
// is, those that end and still serve.
func Endpoints(u Upstream, known Objects) []string { return endpointsOn("", u, known) }

// EndpointsOn are those of them that are on a node; where none is, all of them.
func EndpointsOn(node string, u Upstream, known Objects) []string {
	if list := endpointsOn(node, u, known); len(list) > 0 {
		return list
	}
	return endpointsOn("", u, known)
}

// endpointsOn are the endpoints on a node; empty: on any.
func endpointsOn(node string, u Upstream, known Objects) (list []string) {
	svc := known.Service(u.Namespace, u.Service)
	if svc == nil || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	port := u.port(svc)
	if port == nil {
		return nil
	}
	slicesOf := known.Slices(u.Namespace, u.Service)
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if len(svc.Spec.IPFamilies) > 0 && string(svc.Spec.IPFamilies[0]) != string(family) {
			continue
		}
		var ready, ending []string
		for _, s := range slicesOf {
			if s.AddressType == family {
				ready, ending = ports{port.Name, node}.addresses(s, ready, ending)
			}
		}
		if len(ready) == 0 {
			ready = ending
		}
		list = append(list, ready...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// ports are those of a name, on a node; empty: on any.
type ports struct{ name, node string }

// addresses adds those of a slice.
func (o ports) addresses(s *discoveryv1.EndpointSlice, ready, ending []string) (_, _ []string) {
	for n := range s.Ports {
		p := &s.Ports[n]
		if ptr.Deref(p.Name, "") != o.name || p.Port == nil {
			continue
		}
		number := strconv.Itoa(int(*p.Port))
		for e := range s.Endpoints {
			one := &s.Endpoints[e]
			if len(one.Addresses) == 0 || o.node != "" && ptr.Deref(one.NodeName, "") != o.node {
				continue
			}
			at := net.JoinHostPort(one.Addresses[0], number)
			switch {
			case ptr.Deref(one.Conditions.Ready, true):
				ready = append(ready, at)
			case ptr.Deref(one.Conditions.Terminating, false) && ptr.Deref(one.Conditions.Serving, false):
				ending = append(ending, at)
			}
		}
	}
	return ready, ending
}
