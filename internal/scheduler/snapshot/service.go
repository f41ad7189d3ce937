package snapshot

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Owners finds what pods a controller selects. ok is false if the controller
// is not known (yet).
type Owners func(kind, namespace, name string) (sel labels.Selector, ok bool)

// services is the selectors of a namespace's services.
type services struct {
	selectors  map[string]labels.Set // by the service's name
	generation uint64
}

// SetService tells the selector of a service; empty: it selects nothing, or is gone.
func (s *Snapshot) SetService(namespace, name string, selector map[string]string) {
	in := s.services[namespace]
	if in == nil {
		in = &services{selectors: map[string]labels.Set{}}
		s.services[namespace] = in
	}
	if maps.Equal(in.selectors[name], selector) {
		return
	}
	in.generation++
	s.changed(nil)
	if len(selector) == 0 {
		delete(in.selectors, name)
	} else {
		in.selectors[name] = selector
	}
}

// DefaultSelector is the pods that belong with a pod: those that the same
// services and the same controller select. It is nil if there are none.
func (s *Snapshot) DefaultSelector(p *Pod) *Matcher {
	c := s.Class(p)
	in := s.services[c.namespace]
	var generation uint64
	if in != nil {
		generation = in.generation
	}
	if c.belongs == nil || c.belongs.services != generation {
		c.belongs = &belonging{services: generation, matchers: map[types.UID]*Matcher{}}
	}
	owner := metav1.GetControllerOfNoCopy(p.Obj)
	var uid types.UID
	if owner != nil {
		uid = owner.UID
	}
	if m, ok := c.belongs.matchers[uid]; ok {
		return m
	}
	set := labels.Set{}
	if in != nil {
		for _, selector := range in.selectors {
			if selector.AsSelectorPreValidated().Matches(c.labels) {
				set = labels.Merge(set, selector)
			}
		}
	}
	sel, final := labels.SelectorFromSet(set), true
	if owner != nil && s.owners != nil {
		switch owner.Kind {
		case "ReplicaSet", "StatefulSet", "ReplicationController":
			owned, ok := s.owners(owner.Kind, c.namespace, owner.Name)
			if ok {
				requirements, _ := owned.Requirements()
				sel = sel.Add(requirements...)
			}
			final = ok
		}
	}
	var m *Matcher
	if !sel.Empty() {
		m = NewMatcher([]string{c.namespace}, nil, sel)
	}
	if final { // a controller that is not known yet may be later
		c.belongs.matchers[uid] = m
	}
	return m
}
