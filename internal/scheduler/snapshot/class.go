package snapshot

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// Class is the pods of one namespace with the same labels. What selects one of
// them selects all, so selectors are matched once per class and not per pod.
type Class struct {
	namespace string
	labels    labels.Set
	key       string
	number    uint64

	pods   []*Pod    // on nodes, in no order
	sets   []*PodSet // that count these pods
	avoid  []*Term   // required anti-affinities of running pods against these pods
	prefer []*Term   // preferences of running pods about these pods

	belongs *belonging // what services and owners say, see DefaultSelector
	used    uint64     // last sweep that saw it asked for
	dropped bool
}

// Avoid are the required anti-affinity terms of running pods that are about
// the pods of this class.
func (c *Class) Avoid() []*Term { return c.avoid }

// Prefer are the preferences of running pods that are about the pods of this class.
func (c *Class) Prefer() []*Term { return c.prefer }

func classKey(namespace string, set map[string]string) string {
	var b strings.Builder
	b.WriteString(namespace)
	if len(set) == 0 {
		return b.String()
	}
	var few [16]string
	keys := few[:0]
	for k := range set {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b.WriteByte(0)
		b.WriteString(k)
		b.WriteByte(1)
		b.WriteString(set[k])
	}
	return b.String()
}

// Class returns the class of a pod, which may be pending.
func (s *Snapshot) Class(p *Pod) *Class {
	if p.class != nil && !p.class.dropped {
		p.class.used = s.epoch
		return p.class
	}
	key := classKey(p.Obj.Namespace, p.Obj.Labels)
	c := s.classes[key]
	if c == nil {
		c = &Class{namespace: p.Obj.Namespace, labels: p.Obj.Labels, key: key, number: s.shapes.number()}
		s.classes[key] = c
		in := s.classesIn[c.namespace]
		if in == nil {
			in = map[*Class]struct{}{}
			s.classesIn[c.namespace] = in
		}
		in[c] = struct{}{}
		s.classify(c)
	}
	p.class, c.used = c, s.epoch
	return c
}

// classify finds what is about the class.
func (s *Snapshot) classify(c *Class) {
	c.sets, c.avoid, c.prefer = nil, nil, nil
	for ps := range s.byHome.sets.all(c.namespace) {
		if ps.matches(s, c) {
			c.sets = append(c.sets, ps)
		}
	}
	for t := range s.byHome.terms.all(c.namespace) {
		if t.matcher.Matches(s, c.namespace, c.labels) {
			c.know(t)
		}
	}
}

// know notes a term that is about the class.
func (c *Class) know(t *Term) {
	if t.Kind == Avoidance {
		c.avoid = append(c.avoid, t)
	} else {
		c.prefer = append(c.prefer, t)
	}
}

func (c *Class) forget(t *Term) {
	is := func(x *Term) bool { return x == t }
	c.avoid, c.prefer = slices.DeleteFunc(c.avoid, is), slices.DeleteFunc(c.prefer, is)
}

// eachClass calls fn with the classes that a matcher may be about.
func (s *Snapshot) eachClass(m *Matcher, fn func(*Class)) {
	if ns, ok := m.home(); ok {
		for c := range s.classesIn[ns] {
			fn(c)
		}
		return
	}
	for _, c := range s.classes {
		fn(c)
	}
}

// homes finds things by the one namespace that they are about.
type homes[T comparable] struct {
	in   map[string]map[T]struct{}
	wide map[T]struct{} // about several namespaces
}

func newHomes[T comparable]() homes[T] {
	return homes[T]{in: map[string]map[T]struct{}{}, wide: map[T]struct{}{}}
}

func (h *homes[T]) add(m *Matcher, x T) {
	ns, ok := m.home()
	if !ok {
		h.wide[x] = struct{}{}
		return
	}
	if h.in[ns] == nil {
		h.in[ns] = map[T]struct{}{}
	}
	h.in[ns][x] = struct{}{}
}

func (h *homes[T]) remove(m *Matcher, x T) {
	ns, ok := m.home()
	if !ok {
		delete(h.wide, x)
		return
	}
	delete(h.in[ns], x)
	if len(h.in[ns]) == 0 {
		delete(h.in, ns)
	}
}

// all yields what may be about a namespace.
func (h *homes[T]) all(ns string) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		for x := range h.in[ns] {
			if !yield(x) {
				return
			}
		}
		for x := range h.wide {
			if !yield(x) {
				return
			}
		}
	}
}

// SetNamespace tells the labels of a namespace; nil labels: it is gone. It
// reports whether a namespace that was known has other labels now.
func (s *Snapshot) SetNamespace(name string, set map[string]string) (relabelled bool) {
	old, known := s.namespaces[name]
	if known && set != nil && maps.Equal(old, set) {
		return false
	}
	if set == nil {
		delete(s.namespaces, name)
	} else {
		s.namespaces[name] = set
	}
	s.changed(nil)
	relabelled = known && set != nil
	if len(s.byHome.sets.wide) == 0 && len(s.byHome.terms.wide) == 0 {
		return relabelled
	}
	for c := range s.classesIn[name] {
		for _, p := range c.pods {
			p.countIn(-1)
		}
		s.classify(c)
		for _, p := range c.pods {
			p.countIn(+1)
		}
	}
	return relabelled
}

// belonging remembers the default selectors of a class's pods by their owner.
type belonging struct {
	services uint64 // generation of the namespace's services it was made from
	matchers map[types.UID]*Matcher
}
