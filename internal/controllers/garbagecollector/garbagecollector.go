package garbagecollector

import (
	"context"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// New returns the garbage collector over all resources of the server.
func New(kinds controller.Kinds) *controller.Controller {
	g := &graph{kinds: controller.NewLookup(kinds)}
	return controller.NewKeyed(controller.Keyed{
		Name: "generic-garbage-collector", Source: "garbage-collector-controller",
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch", "update", "delete"},
		}},
		Every: &controller.Every{
			Kinds: kinds,
			Of: func(def *resource.Def) (controller.Watch, bool) {
				return controller.Watch{Def: def, Keys: func(k *controller.Kit, obj resource.Object) []string {
					return g.concerned(k, def, obj)
				}}, def.Stored()
			},
			Changed: func(k *controller.Kit) []string { return g.undecided(k.Transport()) },
		},
		Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
			c := &collector{k: k, t: k.Transport(), graph: g}
			return c.look
		},
	})
}

// graph are the objects of all resources, by their references to each other.
type graph struct{ kinds *controller.Lookup }

// undecided are the objects that have owners or a finalizer of ours: a kind of
// owner or of dependents may be known now that was not.
func (g *graph) undecided(t client.Transport) []string {
	var keys []string
	for _, def := range g.kinds.Defs() {
		c := t.Cache(def, "")
		if c == nil {
			continue
		}
		for _, it := range c.List("", nil) {
			if len(it.Object.GetOwnerReferences()) > 0 || marked(it.Object) {
				keys = append(keys, node{def, it.Key}.String())
			}
		}
	}
	return keys
}

// node is one object of the graph.
type node struct {
	def *resource.Def
	key string
}

func (n node) String() string { return n.def.String() + "|" + n.key }

// get is the object as the cache shows it; nil: it is not there, or its kind has gone.
func (n node) get(t client.Transport) *cache.Item {
	c := t.Cache(n.def, "")
	if c == nil {
		return nil
	}
	return c.Get(n.key)
}

func (g *graph) parse(key string) (node, bool) {
	name, rest, ok := strings.Cut(key, "|")
	def := g.kinds.Name(name)
	return node{def, rest}, ok && def != nil
}

// concerned are the keys that a changed object wakes: its own, if it has owners
// or a finalizer of ours; its dependents', if it is gone or going; its owners', if
// they may be waiting for it.
func (g *graph) concerned(k *controller.Kit, def *resource.Def, obj resource.Object) []string {
	var keys []string
	self := node{def, cache.Key(obj.GetNamespace(), obj.GetName())}
	refs := obj.GetOwnerReferences()
	if len(refs) > 0 || marked(obj) {
		keys = append(keys, self.String())
	}
	it := self.get(k.Transport())
	gone := it == nil || it.Object.GetUID() != obj.GetUID()
	if gone || obj.GetDeletionTimestamp() != nil {
		for _, dep := range g.dependents(k.Transport(), obj) {
			keys = append(keys, dep.String())
		}
	}
	for _, ref := range refs {
		if owner, ok := g.owner(obj.GetNamespace(), ref); ok && waiting(k.Transport(), owner) {
			keys = append(keys, owner.String())
		}
	}
	return keys
}

// owner finds the node that a reference from an object in the namespace names.
func (g *graph) owner(namespace string, ref metav1.OwnerReference) (node, bool) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return node{}, false
	}
	def := g.kinds.Kind(schema.GroupKind{Group: gv.Group, Kind: ref.Kind})
	if def == nil {
		return node{}, false
	}
	if !def.Namespaced {
		namespace = ""
	}
	return node{def, cache.Key(namespace, ref.Name)}, true
}

// dependents are the objects that name obj among their owners.
func (g *graph) dependents(t client.Transport, obj resource.Object) []node {
	var deps []node
	for _, def := range g.kinds.Defs() {
		c := t.Cache(def, "")
		if c == nil { // the kind has gone meanwhile
			continue
		}
		for _, it := range c.ByIndex(resource.IndexOwner, string(obj.GetUID())) {
			deps = append(deps, node{def, it.Key})
		}
	}
	return deps
}

// waiting says that an object is being deleted and waits for its dependents.
func waiting(t client.Transport, n node) bool {
	it := n.get(t)
	return it != nil && it.Object.GetDeletionTimestamp() != nil && marked(it.Object)
}

// marked says that the collector has to act before the object can go.
func marked(obj resource.Object) bool {
	for _, f := range obj.GetFinalizers() {
		if f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents {
			return true
		}
	}
	return false
}
