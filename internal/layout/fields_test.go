package layout_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/layout"
	"github.com/kemudi/kemudi/internal/layout/layouttest"
)

func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(.4).NumElements(0, 2).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = []string{"", "a", "ab", `"<`}[c.Intn(4)] },
		func(n *int32, c randfill.Continue) { *n = c.Int31n(2) },
		func(n *int64, c randfill.Continue) { *n = c.Int63n(2) },
		func(t *time.Time, c randfill.Continue) { *t = seconds(c).Time },
		func(t *metav1.Time, c randfill.Continue) { *t = seconds(c) },
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte("{}")) },
		func(r *runtime.RawExtension, _ randfill.Continue) { r.Raw = []byte("{}") },
		func(j *apiextensionsv1.JSON, _ randfill.Continue) { j.Raw = []byte("{}") },
		func(j *apiextensionsv1beta1.JSON, _ randfill.Continue) { j.Raw = []byte("{}") },
		func(o *runtime.Object, _ randfill.Continue) { *o = nil },
		func(a *any, c randfill.Continue) { *a = []any{nil, "x", (*layouttest.Text)(nil)}[c.Intn(3)] },
	)
}

func seconds(c randfill.Continue) metav1.Time {
	if c.Intn(2) == 0 {
		return metav1.Time{}
	}
	return metav1.NewTime(time.Unix(c.Int63n(4e9), 0))
}

// write writes a struct from its fields, which is what they are for.
func write(t *testing.T, v reflect.Value, fields []layout.Field) []byte {
	t.Helper()
	p, out := layout.PtrOf(v.Addr().Interface()), []byte("{")
	for _, f := range fields {
		at := p.Field(f.Offset)
		if f.Omit != nil && f.Omit(at) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		value := encode(t, at.Value(f.Type).Addr().Interface())
		if f.Quoted && string(value) != "null" {
			value = encode(t, string(value))
		}
		out = append(append(append(out, encode(t, f.Name)...), ':'), value...)
	}
	return append(out, '}')
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// look compares what the fields of a struct type say with encoding/json, then
// does the same for the structs within it.
func look(t *testing.T, typ reflect.Type, seen map[reflect.Type]bool) {
	t.Helper()
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Array:
		look(t, typ.Elem(), seen)
		return
	case reflect.Struct:
	default:
		return
	}
	if seen[typ] || reflect.PointerTo(typ).Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	seen[typ] = true
	fields, err := layout.Fields(typ)
	if err != nil {
		t.Errorf("%v: %v", typ, err)
		return
	}
	f := filler(int64(len(seen)))
	for range 10 {
		v := reflect.New(typ)
		f.Fill(v.Interface())
		if got, want := write(t, v.Elem(), fields), encode(t, v.Interface()); !bytes.Equal(got, want) {
			t.Errorf("%v:\n got %s\nwant %s", typ, got, want)
			return
		}
	}
	for _, f := range fields {
		look(t, f.Type, seen)
	}
}

func TestFieldsOfEveryKindAreThoseOfItsJSONForm(t *testing.T) {
	seen := map[reflect.Type]bool{}
	for _, d := range api.All() {
		look(t, reflect.TypeOf(d.New()), seen)
		for _, v := range d.Versions {
			look(t, reflect.TypeOf(v.New()), seen)
		}
	}
	if len(seen) < 400 {
		t.Errorf("compared %d types, want at least 400", len(seen))
	}
}

func TestFieldsOfRandomTypesAreThoseOfTheirJSONForm(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, f := rand.New(rand.NewPCG(seed, 0)), filler(int64(seed))
	for range 2000 {
		typ := layouttest.Struct(r)
		fields, err := layout.Fields(typ)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		for range 4 {
			v := reflect.New(typ)
			f.Fill(v.Interface())
			if got, want := write(t, v.Elem(), fields), encode(t, v.Interface()); !bytes.Equal(got, want) {
				t.Fatalf("%v:\n got %s\nwant %s", typ, got, want)
			}
		}
	}
}

type hidden struct {
	Inner  string `json:"inner,omitempty"`
	Shadow string `json:"shadow"`
}

type word string

type Shown struct {
	Twice  int
	Number int32  `json:"number,string,omitempty"`
	Named  string `json:"Named"`
}

func TestFieldsOfOddTypes(t *testing.T) {
	type other struct {
		Twice int
		Named string
	}
	for name, v := range map[string]any{
		"an unexported struct is embedded": &struct{ hidden }{hidden{Inner: "a"}},
		"it has a name": &struct {
			hidden `json:"h"`
		}{hidden{Inner: "a"}}, //nolint:govet // that is the case
		"what is embedded and unexported is no struct": &struct{ word }{"a"},
		"what is embedded and exported is no struct":   &struct{ layouttest.Text }{"a"},
		"an embedded pointer is to no struct":          &struct{ *layouttest.Text }{},
		"a pointer to a struct has a name": &struct {
			*Shown `json:"s"`
		}{&Shown{Number: 3}}, //nolint:govet // the same
		"the outer field hides the inner one": &struct {
			hidden
			Shadow int
			S      int `json:"shadow"`
		}{hidden{Shadow: "a"}, 1, 2},
		"two fields of one depth hide each other, unless one has a tag": &struct {
			Shown
			other
		}{Shown{Twice: 1, Named: "a"}, other{Twice: 3, Named: "b"}},
		"an array is not empty": &struct {
			A [2]int `json:",omitempty"`
		}{},
		"an array without elements is": &struct {
			A [0]int `json:",omitempty"`
		}{},
		"a pointer to what says itself that it is zero": &struct {
			A *metav1.Time `json:",omitzero"`
		}{&metav1.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			fields, err := layout.Fields(reflect.TypeOf(v).Elem())
			if err != nil {
				t.Fatal(err)
			}
			if got, want := write(t, reflect.ValueOf(v).Elem(), fields), encode(t, v); !bytes.Equal(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestEmbeddedPointersToStructsAreRefused(t *testing.T) {
	for _, v := range []any{struct{ *Shown }{}, struct{ *hidden }{}, struct {
		A, B int
		X    struct{}
		*Shown
	}{}} {
		if fields, err := layout.Fields(reflect.TypeOf(v)); err == nil {
			t.Errorf("%T: got %v, want an error", v, fields)
		}
	}
	if _, err := layout.Fields(reflect.TypeFor[struct{ In struct{ *Shown } }]()); err != nil {
		t.Errorf("a field whose type is refused: got %v, want that this is found out when it is asked for", err)
	}
}
