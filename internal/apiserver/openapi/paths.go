package openapi

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/resource"
)

// kind is one kind as one group-version serves it.
type kind struct {
	def  *resource.Def
	gvk  schema.GroupVersionKind
	typ  reflect.Type
	live *resource.Live // of a kind that is known at run time only, which has no type
	subs []resource.SubDef
}

// served lists the kinds by group-version.
func served(defs []*resource.Def) map[schema.GroupVersion][]kind {
	out := map[schema.GroupVersion][]kind{}
	for _, def := range defs {
		if def.Dynamic != nil {
			for i := range def.Versions {
				v := &def.Versions[i]
				if gv := (schema.GroupVersion{Group: v.Group, Version: v.Version}); !v.Live.Unserved {
					out[gv] = append(out[gv], kind{def: def, gvk: gv.WithKind(def.Kind), live: v.Live, subs: v.Sub})
				}
			}
			continue
		}
		gv := schema.GroupVersion{Group: def.Group, Version: def.Version}
		out[gv] = append(out[gv], kind{def: def, gvk: def.GVK(), typ: typeOf(def.New()), subs: def.Sub})
		for i := range def.Versions {
			v := &def.Versions[i]
			gv := schema.GroupVersion{Group: v.Group, Version: v.Version}
			out[gv] = append(out[gv], kind{def: def, gvk: gv.WithKind(def.Kind), typ: typeOf(v.New()), subs: v.Sub})
		}
	}
	return out
}

// listKind is the kind of a list of it.
func (k *kind) listKind() string {
	if k.live != nil {
		return k.def.ListKind
	}
	return k.gvk.Kind + "List"
}

func typeOf(obj any) reflect.Type { return reflect.TypeOf(obj).Elem() }

// operation is one verb on one path, in the terms that both document versions share.
type operation struct {
	method string // get, put, post, patch, delete, head, options
	action string // x-kubernetes-action; empty: none
	id     string
	doc    string
	gvk    schema.GroupVersionKind // empty: none
	body   *spec.Schema            // nil: none
	answer *spec.Schema
	query  []parameter
}

// path is one path with its operations.
type path struct {
	url        string
	parameters []parameter // of all operations
	operations []operation
	tag        string // what generated clients sort the operations by
	media      media
}

// media are the media types at a path, where they are not those of most paths.
type media struct {
	custom   bool     // objects have no protobuf form, and no strategic patches
	consumes []string // nil: those of most
	produces []string
}

// base is the root of a group-version: /api/v1 or /apis/group/version.
func base(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// writer makes the paths of a kind; list and object schemas are collected in s.
type writer struct {
	*kind
	s      *schemas
	gv     string       // "CoreV1", which follows the verb in the name of every operation
	scope  string       // "Namespaced" or empty, which comes next
	params []string     // of the collection
	obj    *spec.Schema // the kind's own
}

// paths are the paths of a kind.
func (k *kind) paths(s *schemas) []path {
	w := &writer{kind: k, s: s, gv: camel(k.gvk.GroupVersion())}
	if k.live != nil {
		w.obj = s.custom(k)
	} else {
		w.obj = s.ref(k.typ)
	}
	if k.def.Namespaced {
		w.scope, w.params = "Namespaced", []string{"namespace"}
	}
	out := []path{{url: w.collection(""), parameters: w.in(w.params...), operations: []operation{w.create()}}}
	if k.def.Handler == resource.Generic {
		out = []path{w.whole(), w.object()}
		if k.def.Namespaced {
			out = append(out, path{url: w.all(""), operations: []operation{w.list("ForAllNamespaces")}})
		}
		if k.def.Verbs.Has(resource.Watch) && k.live == nil {
			out = append(out, w.watches()...)
		}
		out = append(out, w.subs()...)
	}
	out = slices.DeleteFunc(out, func(p path) bool { return len(p.operations) == 0 })
	for i := range out {
		p := &out[i]
		p.tag, p.media.custom = groupTag(k.gvk.Group)+"_"+k.gvk.Version, k.live != nil
		for j := range p.operations {
			if o := &p.operations[j]; o.action != "connect" {
				o.query = append(slices.Clone(o.query), pretty)
			}
		}
		p.share()
	}
	return out
}

// all is the path of the objects of all namespaces, and collection that of one;
// below is "/watch" for the deprecated paths of watches.
func (w *writer) all(below string) string {
	return base(w.gvk.GroupVersion()) + below + "/" + w.def.Plural
}

func (w *writer) collection(below string) string {
	if !w.def.Namespaced {
		return w.all(below)
	}
	return base(w.gvk.GroupVersion()) + below + "/namespaces/{namespace}/" + w.def.Plural
}

// in are parameters in a path of the kind.
func (w *writer) in(names ...string) []parameter { return inPath(names, w.gvk.Kind) }

// named are the names of the parameters in the path of an object.
func (w *writer) named() []string { return append([]string{"name"}, w.params...) }

// id names an operation as upstream does: "readCoreV1NamespacedPod", where rest is
// what follows the kind.
func (w *writer) id(verb, rest string) string { return verb + w.gv + w.scope + w.gvk.Kind + rest }

func (w *writer) create() operation {
	return operation{"post", "post", w.id("create", ""), "create " + article(w.gvk.Kind), w.gvk, w.obj, w.obj, w.s.query.create}
}

func (w *writer) list(rest string) operation {
	id := w.id("list", rest)
	if rest != "" {
		id = "list" + w.gv + w.gvk.Kind + rest
	}
	doc := "list or watch objects of kind "
	if w.live != nil || !w.def.Verbs.Has(resource.Watch) {
		doc = "list objects of kind "
	}
	return operation{"get", "list", id, doc + w.gvk.Kind, w.gvk, nil, w.s.listOf(w.kind, w.obj), w.s.query.list}
}

func (w *writer) whole() path {
	p := path{url: w.collection(""), parameters: w.in(w.params...), operations: []operation{w.list("")}}
	if w.def.Verbs.Has(resource.Create) {
		p.operations = append(p.operations, w.create())
	}
	if w.def.Verbs.Has(resource.DeleteCollection) {
		p.operations = append(p.operations, w.deleteCollection())
	}
	return p
}

func (w *writer) deleteCollection() operation {
	o := operation{
		"delete", "deletecollection", "delete" + w.gv + "Collection" + w.scope + w.gvk.Kind, "delete collection of " + w.gvk.Kind,
		w.gvk, w.s.ref(reflect.TypeFor[metav1.DeleteOptions]()), w.s.ref(reflect.TypeFor[metav1.Status]()), w.s.query.collection,
	}
	if w.live != nil {
		o.body, o.query = nil, w.s.query.list // as upstream has it
	}
	return o
}

func (w *writer) object() path {
	p := path{url: w.collection("") + "/{name}", parameters: w.in(w.named()...), operations: []operation{
		{"get", "get", w.id("read", ""), "read the specified " + w.gvk.Kind, w.gvk, nil, w.obj, nil},
	}}
	if w.def.Verbs.Has(resource.Delete) {
		options, answer := w.s.ref(reflect.TypeFor[metav1.DeleteOptions]()), w.obj
		if !w.def.AnswersDeleted {
			answer = w.s.ref(reflect.TypeFor[metav1.Status]())
		}
		p.operations = append(p.operations,
			operation{"delete", "delete", w.id("delete", ""), "delete " + article(w.gvk.Kind), w.gvk, options, answer, w.s.query.remove})
	}
	if w.def.Verbs.Has(resource.Update) {
		change := w.s.ref(reflect.TypeFor[metav1.Patch]())
		p.operations = append(p.operations,
			operation{"put", "put", w.id("replace", ""), "replace the specified " + w.gvk.Kind, w.gvk, w.obj, w.obj, w.s.query.update},
			operation{"patch", "patch", w.id("patch", ""), "partially update the specified " + w.gvk.Kind, w.gvk, change, w.obj, w.s.query.patch})
	}
	return p
}

// watches are the paths that only watch, from before lists had the parameter.
func (w *writer) watches() []path {
	const (
		several = "watch individual changes to a list of %s. deprecated: use the 'watch' parameter with a list operation instead."
		single  = "watch changes to an object of kind %s. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
	)
	event := w.s.ref(reflect.TypeFor[metav1.WatchEvent]())
	list := operation{"get", "watchlist", w.id("watch", "List"), fmt.Sprintf(several, w.gvk.Kind), w.gvk, nil, event, w.s.query.list}
	one := operation{"get", "watch", w.id("watch", ""), fmt.Sprintf(single, w.gvk.Kind), w.gvk, nil, event, w.s.query.list}
	out := []path{
		{url: w.collection("/watch"), parameters: w.in(w.params...), operations: []operation{list}},
		{url: w.collection("/watch") + "/{name}", parameters: w.in(w.named()...), operations: []operation{one}},
	}
	if w.def.Namespaced {
		list.id = "watch" + w.gv + w.gvk.Kind + "ListForAllNamespaces"
		out = append(out, path{url: w.all("/watch"), operations: []operation{list}})
	}
	return out
}

// camel is a group-version as operation names have it: "RbacAuthorizationV1".
func camel(gv schema.GroupVersion) string {
	group := gv.Group
	if group == "" {
		group = "core"
	}
	return camelGroup(group) + title(gv.Version)
}

// camelGroup is a group as operation names have it: "RbacAuthorization".
func camelGroup(group string) string {
	var b strings.Builder
	for part := range strings.FieldsFuncSeq(strings.TrimSuffix(group, ".k8s.io"), func(r rune) bool { return r == '.' || r == '-' }) {
		b.WriteString(title(part))
	}
	return b.String()
}

// groupTag is a group as tags have it: "rbacAuthorization".
func groupTag(group string) string {
	if group == "" {
		group = "core"
	}
	name := camelGroup(group)
	return strings.ToLower(name[:1]) + name[1:]
}

func title(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// article is a kind with its article; those with the name of several have none.
func article(kind string) string {
	switch {
	case strings.HasSuffix(kind, "s") && !strings.HasSuffix(kind, "ss"):
		return kind
	case strings.ContainsRune("AEIOU", rune(kind[0])):
		return "an " + kind
	}
	return "a " + kind
}
