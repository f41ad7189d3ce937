package plane

import (
	"context"
	"net"

	"github.com/kemudi/kemudi/internal/backend"
	"github.com/kemudi/kemudi/internal/hook"
)

// webhooks calls webhooks, those at Services of the cluster by the endpoints that the caches know.
func (p *Plane) webhooks() *hook.Caller {
	return hook.New(hook.Options{Registry: p.o.Registry, Tracing: p.o.Tracing, Dial: func(ctx context.Context, s hook.Service) (net.Conn, error) {
		return p.backends.Dial(ctx, backend.Port{Namespace: s.Namespace, Name: s.Name, Number: s.Port})
	}})
}
