package cluster

import (
	"context"
	"fmt"

	"github.com/kemudi/kemudi/internal/auth/modes"
	"github.com/kemudi/kemudi/internal/features"
	"github.com/kemudi/kemudi/internal/inotify"
	"github.com/kemudi/kemudi/internal/task"
)

// Authorization says who decides who may do what.
type Authorization = modes.Options

// FeatureGates are what people say of upstream's features.
type FeatureGates = features.Gates

// tellFeatures has the metrics tell of features, and the log of gates that nothing follows from.
func (s *server) tellFeatures() error {
	for _, name := range s.o.API.Features.Idle() {
		s.o.Logger.Warn("a feature gate has no effect", "gate", name, "why", "what there is here is on, and nothing else is there")
	}
	if err := s.registry.Register(features.Metrics{Gates: s.o.API.Features}); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// follow starts what keeps authentication and authorization up to date, and what notes who calls deprecated
// versions.
func (s *server) follow(g *task.Group) {
	if run := s.known.Run(); run != nil {
		g.Go("whose tokens are believed", run)
	}
	g.Go("authorization", s.followAuthorization)
	g.Go("legacy calls", func(ctx context.Context) error { return s.legacy.Run(ctx, s.plane.Admin()) })
}

// followAuthorization reads --authorization-config again when it may have changed. Without one there is
// nothing to do.
func (s *server) followAuthorization(ctx context.Context) error {
	a := s.plane.Authorizer()
	if a.File() == "" {
		return nil
	}
	err := inotify.Follow(ctx, a.File(), func(context.Context) bool {
		a.Reload()
		return false
	})
	if err != nil {
		return fmt.Errorf("--authorization-config: %w", err)
	}
	return nil
}
