package openapi

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/kemudi/kemudi/internal/resource"
)

// connects are the methods of subresources that take the connection, by their
// handlers; what they say is no object.
var connects = map[resource.Handler][]string{
	resource.HandleAttach:      {"get", "post"},
	resource.HandleExec:        {"get", "post"},
	resource.HandlePortForward: {"get", "post"},
	resource.HandleProxy:       {"delete", "get", "head", "options", "patch", "post", "put"},
}

// subs are the paths of a kind's subresources.
func (w *writer) subs() []path {
	var out []path
	for i := range w.kind.subs {
		sub := &w.kind.subs[i]
		at := path{url: w.collection("") + "/{name}/" + sub.Name, parameters: w.named()}
		if methods := connects[sub.Handler]; methods != nil {
			at.query = queryOf(typeOf(sub.Body.New()))
			out = append(out, w.connect(at, sub, methods, ""))
			if sub.Handler == resource.HandleProxy {
				at.url, at.parameters = at.url+"/{path}", append(at.parameters, "path")
				out = append(out, w.connect(at, sub, methods, "WithPath"))
			}
			continue
		}
		if sub.Handler == resource.HandleLog {
			at.query = queryOf(reflect.TypeFor[corev1.PodLogOptions]())
		}
		at.operations = w.parts(sub)
		out = append(out, at)
	}
	return out
}

func (w *writer) connect(at path, sub *resource.SubDef, methods []string, rest string) path {
	for _, m := range methods {
		at.operations = append(at.operations, operation{
			m, "connect", "connect" + w.gv + title(m) + w.scope + w.gvk.Kind + title(sub.Name) + rest,
			"connect " + strings.ToUpper(m) + " requests to " + sub.Name + " of " + w.gvk.Kind, gvkOf(sub.Body), nil, plainText(), nil,
		})
	}
	return at
}

// queryOf are the query parameters that an options type is sent as, by name. One
// that may be there several times is documented as one, and a time not at all, as
// upstream has it.
func queryOf(t reflect.Type) (list []parameter) {
	docs := documentation(t)
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		typ := f.Type
		if k := typ.Kind(); k == reflect.Pointer || k == reflect.Slice {
			typ = typ.Elem()
		}
		kind := ""
		switch typ.Kind() {
		case reflect.String:
			kind = "string"
		case reflect.Bool:
			kind = "boolean"
		case reflect.Int32, reflect.Int64:
			kind = "integer"
		}
		if name != "" && kind != "" {
			list = append(list, parameter{name, kind, docs[name]})
		}
	}
	slices.SortFunc(list, func(a, b parameter) int { return strings.Compare(a.name, b.name) })
	return list
}

// parts are the operations of a subresource that is an object or a part of one.
func (w *writer) parts(sub *resource.SubDef) (list []operation) {
	gvk, body := w.gvk, w.obj
	if b := sub.Body; b != nil {
		gvk = gvkOf(b)
		body = w.s.kind(gvk, typeOf(b.New()))
	}
	answer := body
	if sub.Handler == resource.HandleLog {
		answer = plainText()
	}
	kind := w.gvk.Kind
	for _, o := range []struct {
		verb      resource.Verbs
		operation operation
	}{
		{resource.Get, operation{"get", "get", w.id("read", title(sub.Name)), "read " + sub.Name + " of the specified " + kind, gvk, nil, answer, nil}},
		{resource.Update, operation{"put", "put", w.id("replace", title(sub.Name)), "replace " + sub.Name + " of the specified " + kind, gvk, body, body, writeQuery}},
		{resource.Patch, operation{"patch", "patch", w.id("patch", title(sub.Name)), "partially update " + sub.Name + " of the specified " + kind, gvk, w.s.ref(reflect.TypeFor[metav1.Patch]()), body, applyQuery}},
		{resource.Create, operation{"post", "post", w.id("create", title(sub.Name)), "create " + sub.Name + " of " + article(kind), gvk, body, body, writeQuery}},
	} {
		if sub.Verbs.Has(o.verb) {
			list = append(list, o.operation)
		}
	}
	return list
}

func gvkOf(b *resource.Body) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: b.Group, Version: b.Version, Kind: b.Kind}
}

func plainText() *spec.Schema {
	s := text("")
	return &s
}
