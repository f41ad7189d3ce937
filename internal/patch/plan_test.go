package patch

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/kemudi/kemudi/internal/layout"
)

// anything is a schema of structs with whatever fields, owned field by field.
var anything = schema.Schema{Types: []schema.TypeDef{{Name: "any", Atom: schema.Atom{
	Scalar: new(schema.Scalar), Map: &schema.Map{ElementType: schema.TypeRef{Inlined: schema.Atom{Scalar: new(schema.Scalar)}}},
}}}}

// Zero says itself what is zero: that it is odd.
type Zero int32

func (z Zero) IsZero() bool { return z%2 == 1 }

// tagged is a struct whose tag nobody should write, and vet does not let us.
func tagged(tag reflect.StructTag) any {
	v := reflect.New(reflect.StructOf([]reflect.StructField{{Name: "A", Type: reflect.TypeFor[string](), Tag: tag}}))
	v.Elem().Field(0).SetString("x")
	return v.Interface()
}

func TestPlanHasTheFieldsThatJSONShows(t *testing.T) {
	type Inner struct {
		A string `json:"a"`
		B string `json:"b,omitempty"`
	}
	type Other struct{ Both string }
	type Third struct{ Both string }
	for name, v := range map[string]any{
		"a field named with a hyphen": tagged(`json:"-,"`),
		"a field that JSON does not have": &struct {
			A string `json:"-"`
		}{"x"},
		"the outer field hides the inner": &struct {
			Inner
			X string `json:"a"`
		}{Inner{"inner", "b"}, "outer"},
		"fields of one depth hide each other": &struct {
			Inner
			Other
			Third
		}{Inner{"a", "b"}, Other{"x"}, Third{"z"}},
		"only embedding is inline": &struct {
			Field string `json:",inline"`
		}{"x"},
		"an array is not empty": &struct {
			A [2]int32 `json:"a,omitempty"`
		}{},
		"a type says itself what is zero": &struct {
			A Zero `json:"a,omitzero"`
			B Zero `json:"b,omitzero"`
		}{1, 2},
		"and a pointer does": &struct {
			A *metav1.Time `json:"a,omitzero"`
		}{&metav1.Time{}},
		"a name that no tag may give is Go's": tagged(`json:"no\"name"`),
	} {
		t.Run(name, func(t *testing.T) {
			any := "any"
			n, err := (&planner{schema: &anything, done: map[planKey]*node{}}).plan(reflect.TypeOf(v), schema.TypeRef{NamedType: &any})
			if err != nil {
				t.Fatal(err)
			}
			got := []string{}
			for i := range n.fields {
				if n.fields[i].side(layout.PtrOf(v)).has {
					got = append(got, n.fields[i].name)
				}
			}
			data, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			shown := map[string]json.RawMessage{}
			if err := json.Unmarshal(data, &shown); err != nil {
				t.Fatal(err)
			}
			if want := slices.Sorted(maps.Keys(shown)); !slices.Equal(got, want) {
				t.Errorf("got %q, want those of %s", got, data)
			}
		})
	}
}
