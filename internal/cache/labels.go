package cache

import (
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
)

// labelIndex finds objects by their labels. Those of a namespace that have the same labels are
// one group, as the pods of a template are: what the index takes is of the number of groups, and
// little of that of objects. Objects without labels are not in it.
type labelIndex struct {
	seed   maphash.Seed
	groups map[uint64][]*labelled // by the hash of namespace and labels
	pairs  map[labelPair][]*labelled
}

type labelPair struct{ namespace, key, value string }

// labelled is a group.
type labelled struct {
	namespace string
	labels    map[string]string
	items     map[string]*Item // by key
}

func newLabelIndex() *labelIndex {
	return &labelIndex{seed: maphash.MakeSeed(), groups: map[uint64][]*labelled{}, pairs: map[labelPair][]*labelled{}}
}

// hash is the same for the same labels, in whichever order.
func (x *labelIndex) hash(namespace string, set map[string]string) uint64 {
	h := maphash.String(x.seed, namespace)
	for k, v := range set {
		h += maphash.String(x.seed, k) ^ 31*maphash.String(x.seed, v)
	}
	return h
}

// find is the group of an object; nil: there is none.
func (x *labelIndex) find(h uint64, it *Item) *labelled {
	namespace, set := it.Object.GetNamespace(), it.Object.GetLabels()
	for _, g := range x.groups[h] {
		if g.namespace == namespace && maps.Equal(g.labels, set) {
			return g
		}
	}
	return nil
}

// replace takes old out and now in; either may be nil.
func (x *labelIndex) replace(old, now *Item) {
	if old != nil && now != nil && maps.Equal(old.Object.GetLabels(), now.Object.GetLabels()) {
		if g := x.find(x.hash(now.Object.GetNamespace(), now.Object.GetLabels()), now); g != nil {
			g.items[now.Key] = now
		}
		return
	}
	if old != nil {
		x.remove(old)
	}
	if now != nil {
		x.add(now)
	}
}

func (x *labelIndex) add(it *Item) {
	set := it.Object.GetLabels()
	if len(set) == 0 {
		return
	}
	namespace := it.Object.GetNamespace()
	h := x.hash(namespace, set)
	g := x.find(h, it)
	if g == nil {
		g = &labelled{namespace: namespace, labels: set, items: map[string]*Item{}}
		x.groups[h] = append(x.groups[h], g)
		for k, v := range set {
			p := labelPair{namespace, k, v}
			x.pairs[p] = append(x.pairs[p], g)
		}
	}
	g.items[it.Key] = it
}

func (x *labelIndex) remove(it *Item) {
	h := x.hash(it.Object.GetNamespace(), it.Object.GetLabels())
	g := x.find(h, it)
	if g == nil {
		return
	}
	delete(g.items, it.Key)
	if len(g.items) > 0 {
		return
	}
	drop(x.groups, h, g)
	for k, v := range g.labels {
		drop(x.pairs, labelPair{g.namespace, k, v}, g)
	}
}

func drop[K comparable](from map[K][]*labelled, key K, g *labelled) {
	list := from[key]
	at := slices.Index(list, g)
	list[at] = list[len(list)-1]
	list[len(list)-1] = nil
	if list = list[:len(list)-1]; len(list) == 0 {
		delete(from, key)
		return
	}
	from[key] = list
}

// few is how large a part of all objects the index may find, as one of so many: to sort more takes
// longer than to look at all.
const few = 8

// matching returns the objects of a namespace that a selector matches, in the order of their keys. ok
// is false if it is better to look at all: the selector asks for no label with a certain
// value, or matches many.
func (x *labelIndex) matching(namespace string, sel labels.Selector, all int) (items []*Item, ok bool) {
	requirements, _ := sel.Requirements()
	var found []*labelled
	for _, r := range requirements {
		value, exact := sel.RequiresExactMatch(r.Key())
		if !exact {
			continue
		}
		groups := x.pairs[labelPair{namespace, r.Key(), value}]
		if len(groups) == 0 {
			return nil, true
		}
		if found == nil || len(groups) < len(found) {
			found = groups
		}
	}
	if found == nil {
		return nil, false
	}
	for _, g := range found {
		if !sel.Matches(labels.Set(g.labels)) {
			continue
		}
		if len(items)+len(g.items) > all/few {
			return nil, false
		}
		for _, it := range g.items {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b *Item) int { return strings.Compare(a.Key, b.Key) })
	return items, true
}

// byLabels is List by the index of labels, where that helps.
func (c *Cache) byLabels(namespace string, sel labels.Selector) (items []*Item, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.mu.labels == nil {
		return nil, false
	}
	return c.mu.labels.matching(namespace, sel, c.mu.tree.Len())
}
