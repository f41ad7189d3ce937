package aggregate

import (
	"context"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/task"
)

// follow keeps the other servers those that APIServices describe until ctx ends, and wakes who asks
// them when a service or its endpoints have changed (G2).
func (a *Aggregator) follow(ctx context.Context, g *task.Group) error {
	apis := a.o.Cache(apiregistration.APIServices.Def).Follow(cache.FollowOptions{})
	defer apis.Close()
	var around *surroundings
	defer func() { around.close() }()
	for {
		select {
		case <-apis.Ready():
			others := a.take(ctx, g, apis.Next())
			if others > 0 && around == nil {
				around = a.newSurroundings()
			}
			if others == 0 { // G1
				around.close()
				around = nil
			}
		case <-around.servicesReady():
			for _, d := range around.services.Next() {
				a.wake(d.Last().Key)
			}
		case <-around.slicesReady():
			for _, d := range around.slices.Next() {
				s := d.Last().Object.(*discoveryv1.EndpointSlice)
				a.wake(cache.Key(s.Namespace, s.Labels[discoveryv1.LabelServiceName]))
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// surroundings are what the availability of other servers depends on. A nil one is never ready.
type surroundings struct{ services, slices *cache.Follower }

func (a *Aggregator) newSurroundings() *surroundings {
	return &surroundings{
		services: a.o.Cache(core.Services.Def).Follow(cache.FollowOptions{}),
		slices:   a.o.Cache(discovery.EndpointSlices.Def).Follow(cache.FollowOptions{}),
	}
}

func (s *surroundings) servicesReady() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.services.Ready()
}

func (s *surroundings) slicesReady() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.slices.Ready()
}

func (s *surroundings) close() {
	if s != nil {
		s.services.Close()
		s.slices.Close()
	}
}

// take takes in changes of APIServices, and returns how many are of other servers.
func (a *Aggregator) take(ctx context.Context, g *task.Group, deltas []cache.Delta) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range deltas {
		name := d.Last().Object.GetName()
		var s *apiregistrationv1.APIService
		if d.Now != nil {
			s = d.Now.Object.(*apiregistrationv1.APIService)
		}
		a.takeLocked(ctx, g, name, s)
	}
	a.publishLocked()
	return len(a.mu.remotes)
}

// takeLocked takes in the present state of an APIService; nil: it is gone.
func (a *Aggregator) takeLocked(ctx context.Context, g *task.Group, name string, s *apiregistrationv1.APIService) {
	r := a.mu.remotes[name]
	elsewhere := s != nil && s.Spec.Service != nil && s.Spec.Group != "" // the core group is this server's
	if r != nil && (!elsewhere || !r.isOf(s)) {
		r.end()
		delete(a.mu.remotes, name)
		r = nil
	}
	if !elsewhere {
		return
	}
	c := apiregistration.Available(s)
	if r != nil && c == nil {
		r.poke() // somebody has written the status without it
	}
	if r == nil {
		r = a.newRemote(s)
		var asking context.Context
		asking, r.end = context.WithCancel(ctx)
		a.mu.remotes[name] = r
		g.Go("ask "+name, func(context.Context) error { return a.keep(asking, r) })
	}
	r.state.available = c != nil && c.Status == apiregistrationv1.ConditionTrue
	r.state.priority = apiregistration.Priority{Group: s.Spec.GroupPriorityMinimum, Version: s.Spec.VersionPriority}
}

// wake has the servers behind a service asked again.
func (a *Aggregator) wake(service string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.mu.remotes {
		if cache.Key(r.port.Namespace, r.port.Name) == service {
			r.poke()
		}
	}
}
