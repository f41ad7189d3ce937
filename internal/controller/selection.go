package controller

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/task"
)

// Selection declares that objects of a kind, the owners, select others of their
// namespace by labels. The runtime keeps an index of the selectors for all
// controllers that watch by it: what an event costs does not grow with the
// number of owners.
//
// It is for controllers of the owners themselves. The index may be later than
// the owners' cache, but an owner's change is in it before the change wakes the
// owner's key: what is missed meanwhile is seen then.
type Selection struct {
	owners   *resource.Def
	selector func(owner resource.Object) labels.Selector
}

// NewSelection declares the selection of owners; selector returns nil for one
// that selects nothing.
func NewSelection[O resource.Object](owners *resource.Resource[O], selector func(O) labels.Selector) *Selection {
	return &Selection{owners: owners.Def, selector: func(owner resource.Object) labels.Selector { return selector(owner.(O)) }}
}

// Selected is an input whose objects wake the owners that select them.
func (s *Selection) Selected(def *resource.Def) Watch {
	return Watch{Def: def, Selection: s, Keys: func(k *Kit, obj resource.Object) []string { return k.Selecting(s, obj) }}
}

// Adopters is an input of controllers that claim: an object that nobody controls
// wakes the owners that could adopt it.
func (s *Selection) Adopters(def *resource.Def) Watch {
	return Watch{Def: def, Selection: s, Keys: func(k *Kit, obj resource.Object) []string {
		if metav1.GetControllerOfNoCopy(obj) != nil {
			return nil
		}
		return k.Selecting(s, obj)
	}}
}

// Selecting returns the keys of the owners that select obj, sorted. A watch by
// the selection must be among the controller's.
func (k *Kit) Selecting(s *Selection, obj resource.Object) []string {
	return k.hub.selectors(s, k.t.Cache(s.owners, "")).matching(obj.GetNamespace(), obj.GetLabels())
}

// selectors is the index of a selection.
type selectors struct {
	mu struct {
		sync.RWMutex
		spaces map[string]*space // by namespace
	}
}

// space is one namespace of the index. Of each selector that asks for a label
// with a certain value, one such label is chosen: that under which fewest stand
// when it comes. The others are looked at for every object.
type space struct {
	owners map[string]*selector // by key
	byPair map[pair]map[string]*selector
	rest   map[string]*selector
}

type pair struct{ key, value string }

type selector struct {
	match  labels.Selector
	pair   pair
	paired bool
}

func newSelectors() *selectors {
	x := &selectors{}
	x.mu.spaces = map[string]*space{}
	return x
}

// take follows a change of an owner.
func (x *selectors) take(s *Selection, d cache.Delta) {
	var match labels.Selector
	if d.Now != nil {
		match = s.selector(d.Now.Object)
	}
	owner := d.Last().Object
	x.set(owner.GetNamespace(), cache.Key(owner.GetNamespace(), owner.GetName()), match)
}

// set says what the owner with a key selects; nil: nothing.
func (x *selectors) set(namespace, key string, match labels.Selector) {
	x.mu.Lock()
	defer x.mu.Unlock()
	in := x.mu.spaces[namespace]
	if in == nil {
		if match == nil {
			return
		}
		in = &space{owners: map[string]*selector{}, byPair: map[pair]map[string]*selector{}, rest: map[string]*selector{}}
		x.mu.spaces[namespace] = in
	}
	in.remove(key)
	if match != nil {
		in.add(key, match)
	} else if len(in.owners) == 0 {
		delete(x.mu.spaces, namespace)
	}
}

func (in *space) remove(key string) {
	s := in.owners[key]
	if s == nil {
		return
	}
	delete(in.owners, key)
	delete(in.rest, key)
	delete(in.byPair[s.pair], key)
	if len(in.byPair[s.pair]) == 0 {
		delete(in.byPair, s.pair)
	}
}

func (in *space) add(key string, match labels.Selector) {
	s := &selector{match: match}
	in.owners[key] = s
	requirements, _ := match.Requirements()
	for _, r := range requirements {
		value, exact := match.RequiresExactMatch(r.Key())
		if !exact {
			continue
		}
		if p := (pair{r.Key(), value}); !s.paired || len(in.byPair[p]) < len(in.byPair[s.pair]) {
			s.pair, s.paired = p, true
		}
	}
	if !s.paired {
		in.rest[key] = s
		return
	}
	if in.byPair[s.pair] == nil {
		in.byPair[s.pair] = map[string]*selector{}
	}
	in.byPair[s.pair][key] = s
}

// matching are the keys of the owners of a namespace that select labels, sorted.
func (x *selectors) matching(namespace string, set labels.Set) []string {
	if x == nil {
		return nil
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	in := x.mu.spaces[namespace]
	if in == nil {
		return nil
	}
	var keys []string
	look := func(some map[string]*selector) {
		for key, s := range some {
			if s.match.Matches(set) {
				keys = append(keys, key)
			}
		}
	}
	look(in.rest)
	for k, v := range set {
		look(in.byPair[pair{k, v}])
	}
	slices.Sort(keys)
	return keys
}

// kept is an index that controllers use.
type kept struct {
	index *selectors
	users int
	leave func() // ends the following of the owners
}

type keptFor struct {
	s *Selection
	c *cache.Cache
}

// keep has the index of a selection, over the cache of its owners, kept up to
// date until leave is called. Whoever joins the owners' feed after keep has
// returned is told of a change after the index.
func (h *hub) keep(s *Selection, c *cache.Cache) (leave func()) {
	h.mu.Lock()
	of := h.mu.selections[keptFor{s, c}]
	if of == nil {
		of = &kept{index: newSelectors()}
		h.mu.selections[keptFor{s, c}] = of
		_, of.leave = h.joinLocked(c, func(d cache.Delta, _ bool) {
			err := task.Contain(func() error {
				of.index.take(s, d)
				return nil
			})
			if err != nil {
				h.log.Error("read what an object selects", "resource", s.owners.String(), "key", d.Last().Key, "err", err)
			}
		})
	}
	of.users++
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		of.users--
		last := of.users == 0
		if last {
			delete(h.mu.selections, keptFor{s, c})
		}
		h.mu.Unlock()
		if last {
			of.leave()
		}
	}
}

// selectors returns the index of a selection; nil if nobody keeps it.
func (h *hub) selectors(s *Selection, c *cache.Cache) *selectors {
	h.mu.Lock()
	defer h.mu.Unlock()
	if of := h.mu.selections[keptFor{s, c}]; of != nil {
		return of.index
	}
	return nil
}
