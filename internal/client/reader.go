package client

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
)

// Reader reads a resource from the process's cache. Its embedded Cache has the
// rest (Each, Follow, WaitRev, Snapshot).
type Reader[T resource.Object] struct {
	*cache.Cache
}

// Cached returns the reader of a resource over t's cache. scope as in [Transport].
func Cached[T resource.Object](t Transport, r *resource.Resource[T], scope string) Reader[T] {
	return Reader[T]{t.Cache(r.Def, scope)}
}

// Get returns one object; ok is false if it is not there.
func (r Reader[T]) Get(namespace, name string) (obj T, ok bool) {
	if it := r.Cache.Get(cache.Key(namespace, name)); it != nil {
		return it.Object.(T), true
	}
	return obj, false
}

// List returns the objects of a namespace (empty: all) that sel (nil: all) matches.
func (r Reader[T]) List(namespace string, sel labels.Selector) []T {
	return unwrap[T](r.Cache.List(namespace, sel))
}

// ByIndex returns the objects with the value in a declared index.
func (r Reader[T]) ByIndex(index, value string) []T {
	return unwrap[T](r.Cache.ByIndex(index, value))
}

func unwrap[T resource.Object](items []*cache.Item) []T {
	objs := make([]T, len(items))
	for i, it := range items {
		objs[i] = it.Object.(T)
	}
	return objs
}
