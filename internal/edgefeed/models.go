package edgefeed

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/networking"
	"github.com/kemudi/kemudi/internal/balancer"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/edge/route"
	"github.com/kemudi/kemudi/internal/gateway"
	"github.com/kemudi/kemudi/internal/ingress"
)

// gatewayService is the key of the Service that says which tables of Gateways there are.
var gatewayService = cache.Key(metav1.NamespaceSystem, networking.GatewayService)

// models are what an edge is told of: Ingresses, Gateways and balancers.
type models struct {
	known     *ingress.Cached
	ingresses *ingress.Model
	gateways  *gateway.Model
	balancers *balancer.Model
}

func (f *Feeder) newModels(known *ingress.Cached) *models {
	return &models{known: known, ingresses: ingress.NewModel(known), gateways: gateway.NewModel(known, func(table string, err error) {
		f.o.Log.Error("what is told of a Gateway cannot be read: the last that could be stays in force", "secret", table, "err", err)
	}), balancers: balancer.NewModel(known, f.o.NodeName)}
}

// named reads which tables of Gateways there are.
func (m *models) named() {
	var keys []string
	if svc := m.known.Service(metav1.NamespaceSystem, networking.GatewayService); svc != nil {
		for name := range strings.SplitSeq(svc.Annotations[networking.AnnotationGatewayTables], ",") {
			if strings.HasPrefix(name, networking.GatewayTablePrefix) {
				keys = append(keys, cache.Key(metav1.NamespaceSystem, name))
			}
		}
	}
	m.gateways.Tables(keys)
}

// secret says that a Secret has changed.
func (m *models) secret(key string) {
	m.ingresses.Secret(key)
	m.gateways.Secret(key)
	m.balancers.Secret(key)
}

// secrets are the keys of those that are needed.
func (m *models) secrets() []string {
	return slices.Concat(m.ingresses.Secrets(), m.gateways.Secrets(), m.balancers.Secrets())
}

// forget has the next change be all that there is.
func (m *models) forget() {
	m.ingresses.Forget()
	m.gateways.Forget()
	m.balancers.Forget()
}

// commit returns what is different for an edge since the last one.
func (m *models) commit() route.Change {
	c := m.ingresses.Commit()
	m.gateways.Commit(&c)
	m.balancers.Commit(&c)
	return c
}
