package plane

import (
	"context"

	"github.com/kemudi/kemudi/internal/cel/measure"
	"github.com/kemudi/kemudi/internal/extend"
)

// followDefinitions has the kinds of custom resource definitions served, on each server by itself.
func (p *Plane) followDefinitions(ctx context.Context) error {
	f := extend.NewFollower(extend.Options{Transport: p.Admin(), Server: p, Convert: extend.Webhooks(p.calls, extend.NewMetrics(p.o.Registry)), Measure: measure.New(p.o.Registry), Logger: p.o.Logger.With("part", "custom kinds")})
	return f.Run(ctx, func() { close(p.made.customKinds) })
}
