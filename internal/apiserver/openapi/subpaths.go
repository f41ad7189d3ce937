package openapi

import (
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
		at := path{url: w.collection("") + "/{name}/" + sub.Name, parameters: inPath(w.named(), w.kindOf(sub))}
		if methods := connects[sub.Handler]; methods != nil {
			query := w.s.connectQuery(typeOf(sub.Body.New()))
			out = append(out, w.connect(at, sub, methods, query))
			if sub.Handler == resource.HandleProxy {
				out = append(out, w.connect(w.withPath(at), sub, methods, query))
			}
			continue
		}
		at.operations = w.parts(sub)
		if sub.Handler == resource.HandleLog {
			at.media.produces = append([]string{"text/plain"}, answerTypes...)
			at.operations[0].query = w.s.connectQuery(reflect.TypeFor[corev1.PodLogOptions]())
		}
		out = append(out, at)
	}
	return out
}

// kindOf is what is named in the path of a subresource.
func (w *writer) kindOf(sub *resource.SubDef) string {
	if sub.Body != nil && w.live == nil {
		return sub.Body.Kind
	}
	return w.gvk.Kind
}

// withPath is the path of what is behind a proxy.
func (w *writer) withPath(at path) path {
	at.url = at.url + "/{path}"
	at.parameters = append(slices.Clip(at.parameters), inPath([]string{"path"}, "")...)
	return at
}

func (w *writer) connect(at path, sub *resource.SubDef, methods []string, query []parameter) path {
	rest := ""
	if strings.HasSuffix(at.url, "{path}") {
		rest = "WithPath"
	}
	at.media = media{consumes: []string{"*/*"}, produces: []string{"*/*"}}
	for _, m := range methods {
		at.operations = append(at.operations, operation{
			m, "connect", "connect" + w.gv + title(m) + w.scope + w.gvk.Kind + title(sub.Name) + rest,
			"connect " + strings.ToUpper(m) + " requests to " + sub.Name + " of " + w.gvk.Kind, gvkOf(sub.Body), nil, plainText(), query,
		})
	}
	return at
}

// parts are the operations of a subresource that is an object or a part of one.
func (w *writer) parts(sub *resource.SubDef) (list []operation) {
	gvk, body := w.gvk, w.obj
	if b := sub.Body; b != nil {
		gvk = gvkOf(b)
		body = w.s.ref(typeOf(b.New()))
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
		{resource.Update, operation{"put", "put", w.id("replace", title(sub.Name)), "replace " + sub.Name + " of the specified " + kind, gvk, body, body, w.s.query.update}},
		{resource.Patch, operation{"patch", "patch", w.id("patch", title(sub.Name)), "partially update " + sub.Name + " of the specified " + kind, gvk, w.s.ref(reflect.TypeFor[metav1.Patch]()), body, w.s.query.patch}},
		{resource.Create, operation{"post", "post", w.id("create", title(sub.Name)), "create " + sub.Name + " of " + article(kind), gvk, body, body, w.s.query.create}},
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
