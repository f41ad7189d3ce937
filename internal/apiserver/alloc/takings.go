package alloc

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/watchcache"
)

// seen is who has a value at a revision that the cache of the objects may not have reached.
type seen struct {
	held
	at int64
}

// key is where the allocation of a value is in the store.
func (a *Allocator) key(class, name string) string {
	if d := a.takings[class]; d != nil {
		return d.Key("", name)
	}
	return prefixOfAll + class + "/" + name
}

// named is the class and the name of the value that is taken by what has a key.
func (a *Allocator) named(key string) (class, name string) {
	if d := a.takingOf(key); d != nil {
		return d.Taking.Class, strings.TrimPrefix(key, d.Key("", ""))
	}
	class, name, _ = strings.Cut(strings.TrimPrefix(key, prefixOfAll), "/")
	return class, name
}

// takingOf is of which resource the object with the key takes a value; nil: of none.
func (a *Allocator) takingOf(key string) *resource.Def {
	for _, d := range a.takings {
		if strings.HasPrefix(key, d.Key("", "")) {
			return d
		}
	}
	return nil
}

// see is who has a value that an object takes.
func (a *Allocator) see(ctx context.Context, d *resource.Def, name string) (held, error) {
	c := a.o.Caches.Cache(d)
	select {
	case <-c.Synced():
	case <-ctx.Done():
		return held{}, context.Cause(ctx)
	}
	key := d.Key("", name)
	a.mu.Lock()
	s, ok := a.mu.seen[key]
	a.mu.Unlock()
	if ok && c.Rev() < s.at {
		return s.held, nil
	}
	it := c.Get(name)
	if it == nil {
		return held{}, nil
	}
	return held{a.owner(d, it.Object), it.Rev}, nil
}

// seeLocked remembers who has a value since a revision, until the cache shows it.
func (a *Allocator) seeLocked(key string, h held, rev int64) {
	shown := a.o.Caches.Cache(a.takingOf(key)).Rev()
	maps.DeleteFunc(a.mu.seen, func(_ string, s seen) bool { return s.at <= shown })
	if h.owner == "" {
		h = held{}
	}
	if rev > shown && rev > a.mu.seen[key].at {
		a.mu.seen[key] = seen{h, rev}
	}
}

// owner is the key of the object for which a value is taken. What is no resource of ours has
// a name that is no key.
func (a *Allocator) owner(d *resource.Def, obj resource.Object) string {
	h := d.Taking.Holder(obj)
	resource := schema.GroupResource{Group: h.Group, Resource: h.Resource}
	if k := a.kinds[resource]; k != nil {
		return k.Key(h.Namespace, h.Name)
	}
	return resource.String() + "/" + h.Namespace + "/" + h.Name
}

// taken is who has a value by what the store holds. An object that cannot be read has it
// itself.
func (a *Allocator) taken(d *resource.Def, kv store.KV) held {
	if kv.Rev == 0 {
		return held{}
	}
	obj, err := watchcache.Decode(d, kv.Value, kv.Rev)
	if err != nil {
		return held{kv.Key, kv.Rev}
	}
	return held{a.owner(d, obj), kv.Rev}
}

// taking is the stored form of a new object with the key that takes a value for another.
func (a *Allocator) taking(d *resource.Def, key string, holder resource.Holder) ([]byte, error) {
	obj := d.Taking.New(strings.TrimPrefix(key, d.Key("", "")), holder)
	obj.SetUID(types.UID(uuid.NewString()))
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().UTC().Truncate(time.Second)))
	value, err := watchcache.Encode(d, obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", key, err)
	}
	a.o.Caches.Handoff(d, key, value, obj)
	return value, nil
}

// madeTakings are the objects that were made to take values.
func (a *Allocator) madeTakings(d *resource.Def) (all []Allocation) {
	for _, it := range a.o.Caches.Cache(d).List("", nil) {
		if d.Taking.Made(it.Object) {
			all = append(all, Allocation{d.Key("", it.Key), a.owner(d, it.Object), it.Rev, true})
		}
	}
	return all
}
