package ingress

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
)

// Cached are the objects of caches.
type Cached struct {
	IngressClasses client.Reader[*networkingv1.IngressClass]
	Services       client.Reader[*corev1.Service]
	EndpointSlices client.Reader[*discoveryv1.EndpointSlice]
	// Secrets returns a Secret by namespace and name, nil if it is not there.
	Secrets func(namespace, name string) *corev1.Secret
}

var _ Objects = (*Cached)(nil)

// Class returns the class of a name.
func (c *Cached) Class(name string) *networkingv1.IngressClass {
	class, _ := c.IngressClasses.Get("", name)
	return class
}

// Default returns the class of Ingresses that name none.
func (c *Cached) Default() *networkingv1.IngressClass {
	return networking.DefaultClass(c.IngressClasses.List("", nil))
}

// Service returns a service.
func (c *Cached) Service(namespace, name string) *corev1.Service {
	s, _ := c.Services.Get(namespace, name)
	return s
}

// Slices returns those of a service.
func (c *Cached) Slices(namespace, service string) []*discoveryv1.EndpointSlice {
	return c.EndpointSlices.ByIndex(discovery.IndexService, cache.Key(namespace, service))
}

// Secret returns a Secret.
func (c *Cached) Secret(namespace, name string) *corev1.Secret { return c.Secrets(namespace, name) }

// Split takes a key apart.
func Split(key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}
