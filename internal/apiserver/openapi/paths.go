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
	subs []resource.SubDef
}

// served lists the kinds by group-version.
func served(defs []*resource.Def) map[schema.GroupVersion][]kind {
	out := map[schema.GroupVersion][]kind{}
	for _, def := range defs {
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
	method string // get, put, post, patch, delete
	action string // x-kubernetes-action
	id     string
	doc    string
	gvk    schema.GroupVersionKind
	body   *spec.Schema // nil: none
	answer *spec.Schema
	query  []string // names of query parameters
}

// path is one path with its operations.
type path struct {
	url        string
	parameters []string // "name", "namespace"
	operations []operation
}

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

// paths are the paths of a kind; list and object schemas are collected in s.
func (k *kind) paths(s *schemas) []path {
	obj := s.kind(k.gvk, k.typ)
	if k.gvk == k.def.GVK() {
		s.oldFields(k.def, k.typ)
	}
	list := s.list(k.gvk, obj)
	status := s.ref(reflect.TypeFor[metav1.Status]())
	root := base(k.gvk.GroupVersion())
	all := root + "/" + k.def.Plural
	scope, params := "", []string(nil)
	collection := all
	if k.def.Namespaced {
		scope, params = "Namespaced", []string{"namespace"}
		collection = root + "/namespaces/{namespace}/" + k.def.Plural
	}
	name := func(verb string) string { return verb + camel(k.gvk.GroupVersion()) + scope + k.gvk.Kind }
	create := operation{"post", "post", name("create"), "create " + article(k.gvk.Kind), k.gvk, obj, obj, writeQuery}
	if k.def.CreateOnly {
		return []path{{collection, params, []operation{create}}}
	}
	object := path{collection + "/{name}", append([]string{"name"}, params...), []operation{
		{"get", "get", name("read"), "read the specified " + k.gvk.Kind, k.gvk, nil, obj, nil},
		{"delete", "delete", name("delete"), "delete " + article(k.gvk.Kind), k.gvk, s.ref(reflect.TypeFor[metav1.DeleteOptions]()), status, deleteQuery},
	}}
	if !k.def.NoUpdate {
		object.operations = append(object.operations,
			operation{"put", "put", name("replace"), "replace the specified " + k.gvk.Kind, k.gvk, obj, obj, writeQuery},
			operation{"patch", "patch", name("patch"), "partially update the specified " + k.gvk.Kind, k.gvk, s.ref(reflect.TypeFor[metav1.Patch]()), obj, applyQuery})
	}
	whole := path{collection, params, []operation{
		{"get", "list", name("list"), "list or watch objects of kind " + k.gvk.Kind, k.gvk, nil, list, listQuery},
		create,
	}}
	if !k.def.NoDeleteCollection {
		whole.operations = append(whole.operations,
			operation{"delete", "deletecollection", name("deleteCollection"), "delete collection of " + k.gvk.Kind, k.gvk, s.ref(reflect.TypeFor[metav1.DeleteOptions]()), status, append(slices.Clone(deleteQuery), listQuery...)})
	}
	out := []path{whole, object}
	if k.def.Namespaced {
		out = append(out, path{all, nil, []operation{
			{"get", "list", "list" + camel(k.gvk.GroupVersion()) + k.gvk.Kind + "ForAllNamespaces", "list or watch objects of kind " + k.gvk.Kind, k.gvk, nil, list, listQuery},
		}})
	}
	return append(out, k.subPaths(s, object, obj, name)...)
}

func (k *kind) subPaths(s *schemas, object path, obj *spec.Schema, name func(string) string) []path {
	var out []path
	for i := range k.subs {
		sub := &k.subs[i]
		gvk, body := k.gvk, obj
		if b := sub.Body; b != nil {
			gvk = schema.GroupVersionKind{Group: b.Group, Version: b.Version, Kind: b.Kind}
			body = s.kind(gvk, typeOf(b.New()))
		}
		p := path{url: object.url + "/" + sub.Name, parameters: object.parameters}
		suffix := strings.ToUpper(sub.Name[:1]) + sub.Name[1:]
		for _, verb := range sub.Verbs {
			switch verb {
			case "get":
				p.operations = append(p.operations, operation{"get", "get", name("read") + suffix, "read " + sub.Name + " of the specified " + k.gvk.Kind, gvk, nil, body, nil})
			case "update":
				p.operations = append(p.operations, operation{"put", "put", name("replace") + suffix, "replace " + sub.Name + " of the specified " + k.gvk.Kind, gvk, body, body, writeQuery})
			case "patch":
				p.operations = append(p.operations, operation{"patch", "patch", name("patch") + suffix, "partially update " + sub.Name + " of the specified " + k.gvk.Kind, gvk, s.ref(reflect.TypeFor[metav1.Patch]()), body, applyQuery})
			case "create":
				p.operations = append(p.operations, operation{"post", "post", name("create") + suffix, "create " + sub.Name + " of " + article(k.gvk.Kind), gvk, body, body, writeQuery})
			}
		}
		out = append(out, p)
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
		l := object()
		l.Description = gvk.Kind + "List is a list of " + gvk.Kind + " objects."
		items := spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"array"}, Description: "Items is the list of objects.", Items: &spec.SchemaOrArray{Schema: item}}}
		meta := spec.Schema{SchemaProps: spec.SchemaProps{Description: "Standard list metadata.", AllOf: []spec.Schema{*s.ref(reflect.TypeFor[metav1.ListMeta]())}}}
		docs := documentation(reflect.TypeFor[metav1.TypeMeta]())
		kind, version := text(""), text("")
		kind.Description, version.Description = docs["kind"], docs["apiVersion"]
		l.Properties = map[string]spec.Schema{"items": items, "metadata": meta, "kind": kind, "apiVersion": version}
		l.Required = []string{"items"}
		s.byName[name] = &l
	}
	gvk.Kind += "List"
	mark(s.byName[name], gvk)
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
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

// camel is a group-version as operation names have it: "AppsV1".
func camel(gv schema.GroupVersion) string {
	group, _, _ := strings.Cut(gv.Group, ".")
	if group == "" {
		group = "core"
	}
	title := func(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
	return title(group) + title(gv.Version)
}

func article(kind string) string {
	if strings.ContainsRune("AEIOU", rune(kind[0])) {
		return "an " + kind
	}
	return "a " + kind
}
