package patch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"

	"github.com/kemudi/kemudi/internal/texttest"
)

func TestSchemaIsThatOfTheLibraries(t *testing.T) {
	pod := &corev1.Pod{}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	value, err := applyconfigurations.NewTypeConverter(scheme.Scheme).ObjectToTyped(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := value.Schema().Types
	w := schemaWriter{numbers: map[string]int{}}
	packed, err := w.pack(want)
	if err != nil {
		t.Fatal(err)
	}
	if *texttest.Update {
		if err := os.WriteFile("zz_schema.bin", packed, 0o644); err != nil {
			t.Fatal(err)
		}
		return // it is in the next build
	}
	if string(packed) != packedSchema {
		t.Error("zz_schema.bin is not the schema of the libraries as they are now: run go generate ./internal/patch")
	}
	got := readSchema(string(packed))
	if len(got) != len(want) || len(want) < 500 {
		t.Fatalf("types: got %d, want %d", len(got), len(want))
	}
	for i := range want {
		if got, want := text(got[i]), text(want[i]); got != want {
			t.Errorf("type: got %s, want %s", got, want)
		}
	}
	both, err := types().ObjectToTyped(pod)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(both.TypeRef(), value.TypeRef()) {
		t.Errorf("type of a pod: got %v, want %v", text(both.TypeRef()), text(value.TypeRef()))
	}
}

// text is a value with all that its pointers lead to, without what was looked up in it.
func text(v any) string {
	switch v := v.(type) {
	case smd.TypeDef:
		return fmt.Sprintf("%q = %s", v.Name, text(v.Atom))
	case smd.Atom:
		s := ""
		if v.Scalar != nil {
			s += fmt.Sprintf(" scalar %q", *v.Scalar)
		}
		if v.List != nil {
			s += fmt.Sprintf(" list %q %q of %s", v.List.ElementRelationship, v.List.Keys, text(v.List.ElementType))
		}
		if v.Map != nil {
			s += fmt.Sprintf(" map %q of %s {", v.Map.ElementRelationship, text(v.Map.ElementType))
			for _, u := range v.Map.Unions {
				s += fmt.Sprintf(" union %q %v %v;", ptr.Deref(u.Discriminator, ""), u.DeduceInvalidDiscriminator, u.Fields)
			}
			for _, f := range v.Map.Fields {
				s += fmt.Sprintf(" %q %s %#v;", f.Name, text(f.Type), f.Default)
			}
			s += "}"
		}
		return s
	case smd.TypeRef:
		s := fmt.Sprintf("(%s %v", text(v.Inlined), v.Nullable)
		if v.NamedType != nil {
			s += fmt.Sprintf(" named %q", *v.NamedType)
		}
		if v.ElementRelationship != nil {
			s += fmt.Sprintf(" as %q", *v.ElementRelationship)
		}
		return s + ")"
	}
	panic(fmt.Sprintf("%T", v))
}

// schemaWriter packs a schema for schemaReader.
type schemaWriter struct {
	numbers map[string]int // of texts
	texts   []string
	types   []byte
	err     error
}

func (w *schemaWriter) pack(list []smd.TypeDef) ([]byte, error) {
	for _, t := range list {
		w.text(t.Name)
		w.atom(t.Atom)
	}
	out := binary.AppendUvarint(nil, uint64(len(w.texts)))
	for _, s := range w.texts {
		out = binary.AppendUvarint(out, uint64(len(s)))
	}
	for _, s := range w.texts {
		out = append(out, s...)
	}
	out = binary.AppendUvarint(out, uint64(len(list)))
	return append(out, w.types...), w.err
}

func (w *schemaWriter) number(n int) { w.types = binary.AppendUvarint(w.types, uint64(n)) }

func (w *schemaWriter) text(s string) {
	n, ok := w.numbers[s]
	if !ok {
		n = len(w.texts)
		w.numbers[s], w.texts = n, append(w.texts, s)
	}
	w.number(n)
}

// flag is the bit, if it is to be set.
func flag(bit int, set bool) int {
	if set {
		return bit
	}
	return 0
}

func (w *schemaWriter) atom(a smd.Atom) {
	w.number(flag(atomScalar, a.Scalar != nil) | flag(atomList, a.List != nil) | flag(atomMap, a.Map != nil))
	if a.Scalar != nil {
		w.text(string(*a.Scalar))
	}
	if a.List != nil {
		w.ref(a.List.ElementType)
		w.text(string(a.List.ElementRelationship))
		w.number(len(a.List.Keys))
		for _, key := range a.List.Keys {
			w.text(key)
		}
	}
	if a.Map == nil {
		return
	}
	w.number(len(a.Map.Fields))
	for _, f := range a.Map.Fields {
		w.text(f.Name)
		w.ref(f.Type)
		w.fallback(f.Default)
	}
	w.ref(a.Map.ElementType)
	w.text(string(a.Map.ElementRelationship))
	w.number(len(a.Map.Unions))
	for _, u := range a.Map.Unions {
		w.number(flag(1, u.DeduceInvalidDiscriminator))
		w.text(ptr.Deref(u.Discriminator, ""))
		w.number(len(u.Fields))
		for _, f := range u.Fields {
			w.text(f.FieldName)
			w.text(f.DiscriminatorValue)
		}
	}
}

func (w *schemaWriter) ref(t smd.TypeRef) {
	inlined := t.Inlined != smd.Atom{}
	w.number(flag(refNamed, t.NamedType != nil) | flag(refRelationship, t.ElementRelationship != nil) | flag(refInlined, inlined) | flag(refNullable, t.Nullable))
	if t.NamedType != nil {
		w.text(*t.NamedType)
	}
	if t.ElementRelationship != nil {
		w.text(string(*t.ElementRelationship))
	}
	if inlined {
		w.atom(t.Inlined)
	}
}

// fallback writes the default of a field.
func (w *schemaWriter) fallback(v any) {
	if v == nil {
		w.text("")
		return
	}
	data, err := json.Marshal(asJSON(v))
	if err != nil {
		w.err = fmt.Errorf("pack the default %#v: %w", v, err)
	}
	w.text(string(data))
}

// asJSON changes the types of decoded YAML to those of decoded JSON.
func asJSON(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = asJSON(v[i])
		}
		return out
	case map[any]any:
		out := map[string]any{}
		for key, value := range v {
			out[fmt.Sprint(key)] = asJSON(value)
		}
		return out
	}
	return v
}
