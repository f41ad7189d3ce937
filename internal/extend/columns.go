package extend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/jsonpath"

	"github.com/kemudi/kemudi/internal/custom"
	"github.com/kemudi/kemudi/internal/resource"
)

// columns are what kubectl get shows of objects behind their names: up to the first whose path cannot be
// read, as upstream does it, and the age if there are none.
func columns(v *apiextensionsv1.CustomResourceDefinitionVersion) []resource.Column[*custom.Object] {
	if len(v.AdditionalPrinterColumns) == 0 {
		return []resource.Column[*custom.Object]{{
			Name: "Age", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
			Value: func(o *custom.Object) any { return resource.Age(o.CreationTimestamp) },
		}}
	}
	var out []resource.Column[*custom.Object]
	for _, c := range v.AdditionalPrinterColumns {
		find, err := newFinder(c.Name, c.JSONPath)
		if err != nil {
			break
		}
		description := c.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + c.JSONPath
		}
		out = append(out, resource.Column[*custom.Object]{
			Name: c.Name, Type: c.Type, Format: c.Format, Description: description, Priority: c.Priority,
			Value: func(o *custom.Object) any { return find.cell(c.Type, o) },
		})
	}
	return out
}

// fields are the field selectors of a version, by the names that clients have for them.
func fields(selectable []apiextensionsv1.SelectableField) map[string]func(*custom.Object) string {
	out := map[string]func(*custom.Object) string{}
	for _, f := range selectable {
		find, err := newFinder("selectableField", f.JSONPath)
		if err != nil {
			continue // validation has refused it
		}
		out[f.JSONPath[1:]] = func(o *custom.Object) string {
			if v := find.value(o); v != nil {
				return fmt.Sprint(v)
			}
			return ""
		}
	}
	return out
}

// finder finds what a JSONPath leads to in objects.
type finder struct {
	path *jsonpath.JSONPath
	head bool // it may look at more than the body
}

// bodily are paths that cannot lead to metadata, kind and apiVersion.
var bodily = regexp.MustCompile(`^\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+|\[[0-9]+\])*$`)

// heads are paths to what is beside the body.
var heads = regexp.MustCompile(`^\.(metadata|kind|apiVersion)\b`)

func newFinder(name, path string) (*finder, error) {
	p := jsonpath.New(name).AllowMissingKeys(true)
	if err := p.Parse("{" + path + "}"); err != nil {
		return nil, fmt.Errorf("read path %q: %w", path, err)
	}
	return &finder{path: p, head: !bodily.MatchString(path) || heads.MatchString(path)}, nil
}

// find is the first value that the path leads to.
func (f *finder) find(o *custom.Object) (reflect.Value, bool) {
	tree := o.Body
	if f.head {
		tree = o.View
	}
	results, err := f.path.FindResults(tree())
	if err != nil || len(results) == 0 || len(results[0]) == 0 {
		return reflect.Value{}, false
	}
	return results[0][0], true
}

// value is what the path leads to, nil if there is nothing.
func (f *finder) value(o *custom.Object) any {
	v, ok := f.find(o)
	if !ok || !v.IsValid() {
		return nil
	}
	return v.Interface()
}

// cell is the value as a column of a type shows it; nil if it has no such form.
func (f *finder) cell(kind string, o *custom.Object) any {
	found, ok := f.find(o)
	if !ok {
		return nil
	}
	value := found.Interface()
	if kind == "string" {
		var text bytes.Buffer
		if f.path.PrintResults(&text, []reflect.Value{reflect.ValueOf(value)}) != nil {
			return nil
		}
		return text.String()
	}
	return scalar(kind, value)
}

// scalar is a value as a column of a type other than string shows it.
func scalar(kind string, value any) any {
	if n, ok := value.(json.Number); ok {
		if i, err := n.Int64(); err == nil {
			value = i
		} else if f, err := n.Float64(); err == nil {
			value = f
		}
	}
	switch v := value.(type) {
	case int64:
		switch kind {
		case "integer":
			return v
		case "number":
			return float64(v)
		}
	case float64:
		switch kind {
		case "integer":
			return int64(v)
		case "number":
			return v
		}
	case bool:
		if kind == "boolean" {
			return v
		}
	case string:
		if kind == "date" {
			var t metav1.Time
			if t.UnmarshalQueryParameter(v) != nil {
				return "<invalid>"
			}
			return resource.Age(t)
		}
	}
	return nil
}
