package openapi

import (
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
	query  []string // names of query parameters
}

// path is one path with its operations.
type path struct {
	url        string
	parameters []string // "name", "namespace", "path"
	operations []operation
	query      []parameter // query parameters of all operations
	tag        string      // what generated clients sort the operations by
	custom     bool        // objects have no protobuf form, and no strategic patches
}

// parameter is a query parameter that a field of an options type stands for.
type parameter struct{ name, kind, doc string }

var (
	writeQuery = []string{"dryRun", "fieldManager", "fieldValidation"}
	applyQuery = []string{"dryRun", "fieldManager", "fieldValidation", "force"}
	listQuery  = []string{
		"allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
		"resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch",
	}
	deleteQuery = []string{"dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy"}
)

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
	switch {
	case k.live != nil:
		w.obj = s.custom(k)
	case k.gvk == k.def.GVK():
		w.obj = s.kind(k.gvk, k.typ)
		s.oldFields(k.def, k.typ)
	default:
		w.obj = s.kind(k.gvk, k.typ)
	}
	if k.def.Namespaced {
		w.scope, w.params = "Namespaced", []string{"namespace"}
	}
	out := []path{{url: w.collection(""), parameters: w.params, operations: []operation{w.create()}}}
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
	for i := range out {
		out[i].tag, out[i].custom = groupTag(k.gvk.Group)+"_"+k.gvk.Version, k.live != nil
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

// named are the parameters of an object.
func (w *writer) named() []string { return append([]string{"name"}, w.params...) }

// id names an operation as upstream does: "readCoreV1NamespacedPod", where rest is
// what follows the kind.
func (w *writer) id(verb, rest string) string { return verb + w.gv + w.scope + w.gvk.Kind + rest }

func (w *writer) create() operation {
	return operation{"post", "post", w.id("create", ""), "create " + article(w.gvk.Kind), w.gvk, w.obj, w.obj, writeQuery}
}

func (w *writer) list(rest string) operation {
	id := w.id("list", rest)
	if rest != "" {
		id = "list" + w.gv + w.gvk.Kind + rest
	}
	answer := w.s.listOf(w.kind, w.obj)
	return operation{"get", "list", id, "list or watch objects of kind " + w.gvk.Kind, w.gvk, nil, answer, listQuery}
}

func (w *writer) whole() path {
	p := path{url: w.collection(""), parameters: w.params, operations: []operation{w.list("")}}
	if w.def.Verbs.Has(resource.Create) {
		p.operations = append(p.operations, w.create())
	}
	if w.def.Verbs.Has(resource.DeleteCollection) {
		options, status := w.s.ref(reflect.TypeFor[metav1.DeleteOptions]()), w.s.ref(reflect.TypeFor[metav1.Status]())
		p.operations = append(p.operations, operation{
			"delete", "deletecollection", "delete" + w.gv + "Collection" + w.scope + w.gvk.Kind, "delete collection of " + w.gvk.Kind,
			w.gvk, options, status, append(slices.Clone(deleteQuery), listQuery...),
		})
	}
	return p
}

func (w *writer) object() path {
	options, status, change := w.s.ref(reflect.TypeFor[metav1.DeleteOptions]()), w.s.ref(reflect.TypeFor[metav1.Status]()), w.s.ref(reflect.TypeFor[metav1.Patch]())
	p := path{url: w.collection("") + "/{name}", parameters: w.named(), operations: []operation{
		{"get", "get", w.id("read", ""), "read the specified " + w.gvk.Kind, w.gvk, nil, w.obj, nil},
	}}
	if w.def.Verbs.Has(resource.Delete) {
		p.operations = append(p.operations,
			operation{"delete", "delete", w.id("delete", ""), "delete " + article(w.gvk.Kind), w.gvk, options, status, deleteQuery})
	}
	if w.def.Verbs.Has(resource.Update) {
		p.operations = append(p.operations,
			operation{"put", "put", w.id("replace", ""), "replace the specified " + w.gvk.Kind, w.gvk, w.obj, w.obj, writeQuery},
			operation{"patch", "patch", w.id("patch", ""), "partially update the specified " + w.gvk.Kind, w.gvk, change, w.obj, applyQuery})
	}
	return p
}

// watches are the paths that only watch, from before lists had the parameter.
func (w *writer) watches() []path {
	event := w.s.ref(reflect.TypeFor[metav1.WatchEvent]())
	const useList = ". deprecated: use the 'watch' parameter of a list instead"
	list := operation{"get", "watchlist", w.id("watch", "List"), "watch a list of " + w.gvk.Kind + useList, w.gvk, nil, event, listQuery}
	one := operation{"get", "watch", w.id("watch", ""), "watch one " + w.gvk.Kind + useList, w.gvk, nil, event, listQuery}
	out := []path{
		{url: w.collection("/watch"), parameters: w.params, operations: []operation{list}},
		{url: w.collection("/watch") + "/{name}", parameters: w.named(), operations: []operation{one}},
	}
	if w.def.Namespaced {
		list.id = "watch" + w.gv + w.gvk.Kind + "ListForAllNamespaces"
		out = append(out, path{url: w.all("/watch"), operations: []operation{list}})
	}
	return out
}

// kind returns a reference to a top-level kind's schema, marked as such.
func (s *schemas) kind(gvk schema.GroupVersionKind, t reflect.Type) *spec.Schema {
	ref := s.ref(t)
	mark(s.byName[modelName(t)], gvk)
	return ref
}

// list returns a reference to the schema of a kind's list.
func (s *schemas) list(gvk schema.GroupVersionKind, item *spec.Schema) *spec.Schema {
	name := strings.TrimPrefix(item.Ref.String(), s.prefix) + "List"
	if s.byName[name] == nil {
		l := s.listSchema(item)
		l.Description = gvk.Kind + "List is a list of " + gvk.Kind + " objects."
		s.byName[name] = l
	}
	gvk.Kind += "List"
	mark(s.byName[name], gvk)
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
}

// listSchema is the schema of a list, without a description.
func (s *schemas) listSchema(item *spec.Schema) *spec.Schema {
	l := object()
	items := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"array"}, Description: "Items is the list of objects.", Items: &spec.SchemaOrArray{Schema: item}}}
	meta := spec.Schema{SchemaProps: spec.SchemaProps{Description: "Standard list metadata.", AllOf: []spec.Schema{*s.ref(reflect.TypeFor[metav1.ListMeta]())}}}
	docs := documentation(reflect.TypeFor[metav1.TypeMeta]())
	kind, version := text(""), text("")
	kind.Description, version.Description = docs["kind"], docs["apiVersion"]
	l.Properties = map[string]spec.Schema{"items": items, "metadata": meta, "kind": kind, "apiVersion": version}
	l.Required = []string{"items"}
	return &l
}

// mark notes in a schema which kind it is; one type may be several.
func mark(s *spec.Schema, gvk schema.GroupVersionKind) {
	entry := gvkExtension(gvk)
	had, _ := s.Extensions["x-kubernetes-group-version-kind"].([]any)
	for _, e := range had {
		if reflect.DeepEqual(e, entry) {
			return
		}
	}
	s.AddExtension("x-kubernetes-group-version-kind", append(had, entry))
}

func gvkExtension(gvk schema.GroupVersionKind) any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
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

func article(kind string) string {
	if strings.ContainsRune("AEIOU", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}
