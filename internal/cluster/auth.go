package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// authenticator believes the cluster's client certificates, the front proxy that the operator
// names, and tokens: of service accounts, of machines that join, and of whom the operator's flags name.
func (s *server) authenticator(caches *watchcache.Set) authenticator.Request {
	tokens := authn.NewServiceAccountTokens(s.issuer, authn.Objects{
		ServiceAccount: reader(caches, core.ServiceAccounts),
		Secret:         reader(caches, core.Secrets),
		Pod:            reader(caches, core.Pods),
		Node: func(ctx context.Context, name string) *corev1.Node {
			return reader(caches, core.Nodes)(ctx, "", name)
		},
		Used:     s.used.Used,
		Fresh:    caches.Fresh,
		Registry: s.registry,
	})
	secrets := caches.Cache(core.Secrets.Def)
	joining := authn.BootstrapTokens{Secret: func(name string) *corev1.Secret {
		if it := secrets.Get(cache.Key(metav1.NamespaceSystem, name)); it != nil {
			return it.Object.(*corev1.Secret)
		}
		return nil
	}}
	known := []authenticator.Token{tokens, authn.ForAudiences(s.issuer.Audiences(), joining)}
	if a := s.o.alone; a != nil && !a.BootstrapTokens {
		known = known[:1]
	}
	s.access = authn.NewNodeAccess(caches.Cache(core.Nodes.Def), caches.Cache(certificates.CertificateSigningRequests.Def), caches.Fresh)
	o := s.known.Chain(known...)
	o.Nodes = s.access
	return s.chain(o)
}

// reader reads objects from a cache; the function returns nil for what is not there.
func reader[T resource.Object](caches *watchcache.Set, r *resource.Resource[T]) func(ctx context.Context, namespace, name string) T {
	c := caches.Cache(r.Def)
	return func(_ context.Context, namespace, name string) (obj T) {
		if it := c.Get(cache.Key(namespace, name)); it != nil {
			return it.Object.(T)
		}
		return obj
	}
}
