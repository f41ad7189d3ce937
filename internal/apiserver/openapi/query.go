package openapi

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// parameter is one of a path or of its query.
type parameter struct{ name, in, kind, doc string }

const (
	prettyDoc    = "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."
	namespaceDoc = "object name and auth scope, such as for teams and projects"
)

var pretty = parameter{"pretty", "query", "string", prettyDoc}

// queries are the query parameters of operations.
type queries struct{ list, remove, collection, create, update, patch []parameter }

func newQueries() queries {
	q := queries{
		list:   options(metav1.ListOptions{}, metav1.ListOptions{}.SwaggerDoc()),
		remove: options(metav1.DeleteOptions{}, metav1.DeleteOptions{}.SwaggerDoc()),
		create: options(metav1.CreateOptions{}, metav1.CreateOptions{}.SwaggerDoc()),
		update: options(metav1.UpdateOptions{}, metav1.UpdateOptions{}.SwaggerDoc()),
		patch:  options(metav1.PatchOptions{}, metav1.PatchOptions{}.SwaggerDoc()),
	}
	// What is deleted as a collection is listed, and not watched.
	q.collection = append(slices.Clone(q.remove), slices.DeleteFunc(slices.Clone(q.list), func(p parameter) bool {
		return p.name == "watch" || p.name == "allowWatchBookmarks"
	})...)
	return q
}

func options(of any, docs map[string]string) []parameter { return queryOf(reflect.TypeOf(of), docs) }

// queryOf are the query parameters that an options type is sent as. One that may
// be there several times is documented as one, and a time not at all, as upstream has it.
func queryOf(t reflect.Type, docs map[string]string) (list []parameter) {
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
			list = append(list, parameter{name, "query", kind, docs[name]})
		}
	}
	return list
}

// connectQuery are the query parameters of a connection: the fields of its options, which have a schema.
func (s *schemas) connectQuery(t reflect.Type) []parameter {
	var model struct {
		Properties map[string]struct{ Description string }
	}
	// Without it they have no descriptions.
	_ = json.Unmarshal(s.all.Schemas[modelName(t)], &model)
	docs := map[string]string{}
	for name, p := range model.Properties {
		docs[name], _, _ = strings.Cut(p.Description, "\n\nPossible enum values:")
	}
	return queryOf(t, docs)
}

// inPath are the parameters in the path itself; kind is that of what is named.
func inPath(names []string, kind string) (list []parameter) {
	docs := map[string]string{"name": "name of the " + kind, "namespace": namespaceDoc, "path": "path to the resource"}
	for _, name := range names {
		list = append(list, parameter{name, "path", "string", docs[name]})
	}
	return list
}

// inOrder sorts parameters as documents have them.
func inOrder(list []parameter) []parameter {
	slices.SortFunc(list, func(a, b parameter) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.in, b.in)
	})
	return list
}

// share takes the query parameters that all operations of a path have to the path.
func (p *path) share() {
	first := &p.operations[0]
	for _, q := range slices.Clone(first.query) {
		if !slices.ContainsFunc(p.operations, func(o operation) bool { return !slices.Contains(o.query, q) }) {
			p.parameters = append(p.parameters, q)
		}
	}
	for i := range p.operations {
		o := &p.operations[i]
		o.query = inOrder(slices.DeleteFunc(slices.Clone(o.query), func(q parameter) bool { return slices.Contains(p.parameters, q) }))
	}
	inOrder(p.parameters)
}
