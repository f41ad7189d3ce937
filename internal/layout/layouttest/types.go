// Package layouttest makes struct types at random, with all that tags can say and
// with fields that hide each other: for tests that compare a reader of types with
// encoding/json.
package layouttest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of few kinds, so that they meet.
var names = []string{"", "", "", "a", "b", "A0", "A1", "-", "A2 x", "$ref", `no"name`, "<&>", "日本"}

var options = []string{"omitempty", "omitzero", "string", "inline", "unknown", ""}

var leaves = []reflect.Type{
	reflect.TypeFor[bool](), reflect.TypeFor[string](), reflect.TypeFor[int](), reflect.TypeFor[int8](), reflect.TypeFor[int32](), reflect.TypeFor[int64](),
	reflect.TypeFor[uint16](), reflect.TypeFor[uint32](), reflect.TypeFor[uint64](), reflect.TypeFor[float32](), reflect.TypeFor[float64](),
	reflect.TypeFor[[]byte](), reflect.TypeFor[[]string](), reflect.TypeFor[map[string]string](), reflect.TypeFor[map[string][]byte](), reflect.TypeFor[map[int]bool](),
	reflect.TypeFor[*string](), reflect.TypeFor[*int64](), reflect.TypeFor[**bool](), reflect.TypeFor[[2]int32](), reflect.TypeFor[[0]int](), reflect.TypeFor[any](),
	reflect.TypeFor[metav1.Time](), reflect.TypeFor[*metav1.Time](), reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Duration](), reflect.TypeFor[metav1.ObjectMeta](),
	reflect.TypeFor[Text](), reflect.TypeFor[*Text](),
}

// Text has a notion of its own of what is zero.
type Text string

// IsZero implements what the option omitzero asks for.
func (t Text) IsZero() bool { return len(t)%2 == 0 }

// Struct makes a type.
func Struct(r *rand.Rand) reflect.Type { return structType(r, 0) }

// deepest is how deep structs lie within each other.
const deepest = 3

func structType(r *rand.Rand, depth int) reflect.Type {
	fields := make([]reflect.StructField, r.IntN(6))
	for i := range fields {
		f := &fields[i]
		f.Name, f.Type = fmt.Sprintf("A%d", i), fieldType(r, depth)
		f.Anonymous = f.Type.Kind() == reflect.Struct && f.Type.NumMethod() == 0 && f.Type.Name() == "" && r.IntN(3) > 0
		if r.IntN(4) > 0 {
			f.Tag = tag(r)
		}
	}
	return reflect.StructOf(fields)
}

func fieldType(r *rand.Rand, depth int) reflect.Type {
	if depth == deepest || r.IntN(2) > 0 {
		return leaves[r.IntN(len(leaves))]
	}
	inner := structType(r, depth+1)
	switch r.IntN(8) {
	case 0:
		return reflect.PointerTo(inner)
	case 1:
		return reflect.SliceOf(inner)
	case 2:
		return reflect.MapOf(reflect.TypeFor[string](), inner)
	}
	return inner
}

func tag(r *rand.Rand) reflect.StructTag {
	said := []string{names[r.IntN(len(names))]}
	for range r.IntN(3) {
		said = append(said, options[r.IntN(len(options))])
	}
	return reflect.StructTag(fmt.Sprintf("json:%q", strings.Join(said, ",")))
}
