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
func New(defs []*resource.Def) *controller.Controller {
	g := &graph{byName: map[string]*resource.Def{}, byKind: map[schema.GroupKind]*resource.Def{}}
	s := controller.Keyed{
		Name: "generic-garbage-collector",
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch", "update", "delete"},
		}},
		Workers: 8,
	}
	for _, def := range defs {
		if def.CreateOnly {
			continue
		}
		g.defs = append(g.defs, def)
		g.byName[def.String()] = def
		g.byKind[def.GVK().GroupKind()] = def
		for _, v := range def.Versions {
			g.byKind[schema.GroupKind{Group: v.Group, Kind: def.Kind}] = def
		}
		s.Watches = append(s.Watches, controller.Watch{Def: def, Keys: func(k *controller.Kit, obj resource.Object) []string {
			return g.concerned(k, def, obj)
		}})
	}
	s.Setup = func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
		c := &collector{k: k, t: k.Transport(), graph: g}
		return c.look
	}
	return controller.NewKeyed(s)
}

// graph finds resources by name and kind. It is read-only after New.
type graph struct {
	defs   []*resource.Def
	byName map[string]*resource.Def
	byKind map[schema.GroupKind]*resource.Def
}

// node is one object of the graph.
type node struct {
	def *resource.Def
	key string
}

func (n node) String() string { return n.def.String() + "|" + n.key }

func (g *graph) parse(key string) (node, bool) {
	name, rest, ok := strings.Cut(key, "|")
	return node{g.byName[name], rest}, ok && g.byName[name] != nil
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
	it := k.Transport().Cache(def, "").Get(self.key)
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
	def := g.byKind[schema.GroupKind{Group: gv.Group, Kind: ref.Kind}]
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
	for _, def := range g.defs {
		for _, it := range t.Cache(def, "").ByIndex(resource.IndexOwner, string(obj.GetUID())) {
			deps = append(deps, node{def, it.Key})
		}
	}
	return deps
}

// waiting says that an object is being deleted and waits for its dependents.
func waiting(t client.Transport, n node) bool {
	it := t.Cache(n.def, "").Get(n.key)
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
