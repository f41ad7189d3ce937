package policy

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/admission/static"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/cel/measure"
	"github.com/kemudi/kemudi/internal/resource"
)

// set is the policies of one kind that are in force, as C, in the order of their names. It may be
// used concurrently. It runs nothing: who asks first after a change takes it in.
type set[C any] struct {
	of                 static.Pair
	policies, bindings *cache.Cache
	files              *static.Set // nil: there are none
	compile            func(policy resource.Object) C
	bind               func(b resource.Object) *binding

	mu struct {
		sync.RWMutex
		followers []*cache.Follower // of both caches; nil: not begun yet
		policies  map[string]*kept[C]
		bindings  map[string]*binding
		active    []active[C]

		files *static.Content // which were read
		fixed []active[C]     // of files
	}
}

// newSet is the policies of a pair of kinds, and those of the files that the plugin is told of.
func newSet[C any](o *admission.Options, plugin string, of static.Pair) (*set[C], error) {
	files, err := static.Policies(o, plugin, of)
	return &set[C]{of: of, policies: admission.CacheOf(o, of.Policies), bindings: admission.CacheOf(o, of.Bindings), files: files}, err
}

// kept is a policy that is compiled when it is needed.
type kept[C any] struct {
	name string
	once func() C
}

// timed is compile, with the time that it takes counted.
func timed[C any](m *measure.Metrics, compile func(resource.Object) C) func(resource.Object) C {
	return func(obj resource.Object) C {
		defer m.Compiled(time.Now())
		return compile(obj)
	}
}

// active is a policy with the bindings that put it in force, by their names.
type active[C any] struct {
	policy   func() C
	bindings []*binding
}

// inForce are the policies that have bindings, those of files before the others. The list is read-only.
func (s *set[C]) inForce() []active[C] {
	fixed, rest := s.fixed(), s.inStore()
	if len(fixed) == 0 {
		return rest
	}
	return slices.Concat(fixed, rest)
}

// fixed are the policies of files, which alone are asked about webhooks and policies. The list is read-only.
func (s *set[C]) fixed() []active[C] {
	if s.files == nil {
		return nil
	}
	now := s.files.Now()
	s.mu.RLock()
	known, fixed := s.mu.files == now, s.mu.fixed
	s.mu.RUnlock()
	if known {
		return fixed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	policies, bindings := map[string]*kept[C]{}, map[string]*binding{}
	for _, obj := range now.Of(s.of.Policies) {
		policies[obj.GetName()] = s.keep(obj)
	}
	for _, obj := range now.Of(s.of.Bindings) {
		bindings[obj.GetName()] = s.bind(obj)
	}
	s.mu.files, s.mu.fixed = now, arrange(policies, bindings)
	return s.mu.fixed
}

// keep has a policy compiled when it is needed.
func (s *set[C]) keep(obj resource.Object) *kept[C] {
	return &kept[C]{obj.GetName(), sync.OnceValue(func() C { return s.compile(obj) })}
}

// inStore are the policies of the API.
func (s *set[C]) inStore() []active[C] {
	if s.bindings.Len() == 0 || s.policies.Len() == 0 {
		return nil
	}
	s.mu.RLock()
	if s.freshLocked() {
		defer s.mu.RUnlock()
		return s.mu.active
	}
	s.mu.RUnlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.followers == nil {
		s.mu.policies, s.mu.bindings = map[string]*kept[C]{}, map[string]*binding{}
		s.mu.followers = []*cache.Follower{s.policies.Follow(cache.FollowOptions{}), s.bindings.Follow(cache.FollowOptions{})}
	}
	s.drainLocked()
	s.mu.active = arrange(s.mu.policies, s.mu.bindings)
	return s.mu.active
}

func (s *set[C]) freshLocked() bool {
	for _, f := range s.mu.followers {
		if len(f.Ready()) > 0 {
			return false
		}
	}
	return s.mu.followers != nil
}

func (s *set[C]) drainLocked() {
	for i, f := range s.mu.followers {
		for len(f.Ready()) > 0 {
			<-f.Ready()
			for _, d := range f.Next() {
				s.takeLocked(i == 0, d)
			}
		}
	}
}

// takeLocked takes in one change of a policy, or of a binding. A change that leaves the spec
// as it was, and so the generation, compiles nothing anew.
func (s *set[C]) takeLocked(policy bool, d cache.Delta) {
	name := d.Last().Object.GetName()
	switch {
	case d.Now == nil && policy:
		delete(s.mu.policies, name)
	case d.Now == nil:
		delete(s.mu.bindings, name)
	case !policy:
		s.mu.bindings[name] = s.bind(d.Now.Object)
	case s.mu.policies[name] == nil || d.Prev == nil || !sameSpec(d.Prev.Object, d.Now.Object):
		s.mu.policies[name] = s.keep(d.Now.Object)
	}
}

func sameSpec(a, b resource.Object) bool {
	return a.GetUID() == b.GetUID() && a.GetGeneration() == b.GetGeneration()
}

// arrange joins policies and bindings.
func arrange[C any](policies map[string]*kept[C], bindings map[string]*binding) (all []active[C]) {
	of := map[string][]*binding{}
	for _, b := range bindings {
		of[b.policy] = append(of[b.policy], b)
	}
	names := make([]string, 0, len(of))
	for name := range of {
		if policies[name] != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		slices.SortFunc(of[name], func(a, b *binding) int { return strings.Compare(a.name, b.name) })
		all = append(all, active[C]{policies[name].once, of[name]})
	}
	return all
}
