package openapi

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// customName is the name of the model of a kind that has no Go type: "com.example.v1.Foo".
func customName(group, version, kind string) string {
	parts := strings.Split(group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, version, kind), ".")
}

// custom returns a reference to the schema of a kind that says itself what it has, and collects it.
func (s *schemas) custom(k *kind) *spec.Schema {
	name := customName(k.gvk.Group, k.gvk.Version, k.gvk.Kind)
	if s.byName[name] == nil {
		s.ref(reflect.TypeFor[metav1.ObjectMeta]()) // which it refers to
		model := &spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}}
		if k.live.Model != nil {
			model = k.live.Model(s.form())
		}
		s.byName[name] = model
		mark(model, k.gvk)
	}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
}

// form is the version of the document that the schemas are for.
func (s *schemas) form() int {
	if s.prefix == "#/definitions/" {
		return 2
	}
	return 3
}

// listOf returns a reference to the schema of a kind's list, which may have a name of its own.
func (s *schemas) listOf(k *kind, item *spec.Schema) *spec.Schema {
	if k.live == nil {
		return s.list(k.gvk, item)
	}
	gvk := k.gvk
	gvk.Kind = k.def.ListKind
	name := customName(gvk.Group, gvk.Version, gvk.Kind)
	if s.byName[name] == nil {
		l := s.listSchema(item)
		l.Description = fmt.Sprintf("%s is a list of %s", gvk.Kind, k.gvk.Kind)
		items := l.Properties["items"]
		items.Description = fmt.Sprintf("List of %s. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md", k.def.Plural)
		l.Properties["items"] = items
		mark(l, gvk)
		s.byName[name] = l
	}
	return &spec.Schema{SchemaProps: spec.SchemaProps{Ref: spec.MustCreateRef(s.prefix + name)}}
}
