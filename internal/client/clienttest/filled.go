package clienttest

import (
	"fmt"
	"reflect"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// Filled is a transport that has nothing but caches, whose objects the test puts
// in; a request panics. For what follows caches and asks nothing of the API. The
// methods may not be called concurrently; the caches may be read meanwhile.
type Filled struct {
	client.Transport
	progress cache.Progress
	caches   map[*resource.Def]*cache.Cache
	defs     map[reflect.Type]*resource.Def
	rev      int64
}

// NewFilled returns caches that have been listed and hold objects.
func NewFilled(objects ...resource.Object) *Filled {
	f := &Filled{caches: map[*resource.Def]*cache.Cache{}, defs: map[reflect.Type]*resource.Def{}}
	first := map[*resource.Def][]*cache.Item{}
	for _, def := range api.All() {
		f.defs[reflect.TypeOf(def.New())] = def
	}
	for _, o := range objects {
		first[f.def(o)] = append(first[f.def(o)], f.item(o))
	}
	for _, def := range api.All() {
		f.caches[def] = cache.New(def, &f.progress)
		f.caches[def].Replace(first[def], f.rev)
	}
	f.progress.Advance(f.rev)
	return f
}

// Cache returns the cache of a kind, whatever the scope.
func (f *Filled) Cache(def *resource.Def, _ string) *cache.Cache { return f.caches[def] }

// Hold returns the cache of a kind as well.
func (f *Filled) Hold(def *resource.Def, scope string) (*cache.Cache, func()) {
	return f.Cache(def, scope), func() {}
}

// Relist gives def a new cache, which is not listed before list is called: with
// the objects of the former one.
func (f *Filled) Relist(def *resource.Def) (list func()) {
	known, late := f.caches[def], cache.New(def, &f.progress)
	f.caches[def] = late
	return func() { late.Replace(known.List("", nil), f.rev) }
}

// Put adds objects, or changes those that are there.
func (f *Filled) Put(objects ...resource.Object) { f.apply(false, objects) }

// Remove takes objects away, of which only the names matter.
func (f *Filled) Remove(objects ...resource.Object) { f.apply(true, objects) }

func (f *Filled) apply(gone bool, objects []resource.Object) {
	for _, o := range objects {
		f.caches[f.def(o)].Apply([]cache.Change{{Item: f.item(o), Delete: gone}})
	}
	f.progress.Advance(f.rev)
}

func (f *Filled) def(o resource.Object) *resource.Def {
	def := f.defs[reflect.TypeOf(o)]
	if def == nil {
		panic(fmt.Sprintf("no definition of %T", o))
	}
	return def
}

func (f *Filled) item(o resource.Object) *cache.Item {
	f.rev++
	return &cache.Item{Key: cache.Key(o.GetNamespace(), o.GetName()), Rev: f.rev, Object: o}
}
