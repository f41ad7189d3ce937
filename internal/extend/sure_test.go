package extend

import (
	"math/rand/v2"
	"reflect"
	"testing"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/wire"
)

// limits has each limit that a schema may have, those that are not decided at a glance included.
const limits = `
metadata: {name: crontabs.stable.example.com, uid: u1, generation: 1}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: crontabs, kind: CronTab}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [a]
        properties:
          a: {type: string, minLength: 1, maxLength: 2, pattern: "^[aä]*$"}
          b: {type: integer, minimum: -1, maximum: 2, format: int64}
          c: {type: number, minimum: 0.5}
          d: {type: array, minItems: 1, maxItems: 2, items: {type: string, enum: [a, aa]}}
          e: {type: object, minProperties: 1, maxProperties: 2, additionalProperties: {type: integer, nullable: true}}
          f: {type: boolean, nullable: true}
          g: {x-kubernetes-int-or-string: true, maximum: 1}
          h: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}
          i: {type: array, items: {type: object, required: [a], properties: {a: {type: integer}, b: {type: array, items: {type: boolean}}}}}
          j: {type: string, format: date-time}
          k: {type: integer, multipleOf: 2, enum: [1, 2]}
          l: {type: string, nullable: true, enum: [a, ""]}
          m: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}], maxLength: 1}
          "n": {type: integer, exclusiveMaximum: true, maximum: 2}
          o: {type: object, additionalProperties: true}
          p: {x-kubernetes-preserve-unknown-fields: true}
          q: {type: object, oneOf: [{required: [a]}, {required: [b]}], properties: {a: {type: string}, b: {type: string}}}
`

// plainValue is a value such as the limits have been made for.
func plainValue(r *rand.Rand) any {
	return []any{nil, true, int64(r.IntN(5) - 2), float64(r.IntN(5)) / 2, "", "a", "ä", "aa", "b", "2020-01-02T03:04:05Z"}[r.IntN(10)]
}

func valueOf(r *rand.Rand, depth int) any {
	switch n := r.IntN(8); {
	case depth > 0 && n == 0:
		list := make([]any, r.IntN(3))
		for i := range list {
			list[i] = valueOf(r, depth-1)
		}
		return list
	case depth > 0 && n == 1:
		return objectOf(r, depth-1)
	}
	return plainValue(r)
}

func objectOf(r *rand.Rand, depth int) map[string]any {
	out := map[string]any{}
	for range r.IntN(4) {
		out[string(rune('a'+r.IntN(18)))] = valueOf(r, depth)
	}
	return out
}

func TestWhatIsDecidedAtAGlanceIsWhatTheLibrarySays(t *testing.T) {
	s := newSchema(NewSource(definition(t, limits)), 0)
	rules := s.rules()
	if rules.err != nil || rules.plain == nil {
		t.Fatalf("got %v, %v", rules.plain, rules.err)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	right, known := 0, 0
	for range 30_000 {
		v := objectOf(r, 3)
		if r.IntN(2) == 0 {
			v["a"] = "a"
		}
		if rules.plain.holds(v) {
			right++
			if wrong := validation.ValidateCustomResource(nil, v, rules.whole); len(wrong) > 0 {
				t.Fatalf("%v: got right, want %v", v, wrong)
			}
		}
		if all, nulls := s.outline().knows(v); all {
			known++
			whole := runtime.DeepCopyJSONValue(v)
			if defaulting.PruneNonNullableNullsWithoutDefaults(whole, s.shape()); !nulls && !reflect.DeepEqual(whole, v) {
				t.Fatalf("%v: got no nulls, want %v", v, whole)
			}
			if pruned := pruning.PruneWithOptions(runtime.DeepCopyJSONValue(v), s.shape(), true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(pruned) > 0 {
				t.Fatalf("%v: got nothing unknown, want %v", v, pruned)
			}
		}
	}
	if right < 1000 || known < 1000 {
		t.Errorf("got %d values that are right and %d without unknown fields, want more", right, known)
	}
}

func TestPlainObjectsAreDecidedAtAGlance(t *testing.T) {
	rules := newSchema(NewSource(definition(t, limits)), 0).rules()
	for text, want := range map[string]bool{
		`{"a":"a"}`: true, `{"a":"aa","b":2,"c":0.5,"d":["a"],"e":{"x":null},"f":null,"g":"x","h":{"a":"x","z":[1]},"i":[{"a":1,"b":[true]}],"l":"","other":{}}`: true,
		`{"a":"a","j":"2020-01-02T03:04:05Z"}`: false, `{"a":"a","k":2}`: false, `{"a":"a","l":null}`: false, `{"a":"a","m":1}`: false, `{"a":"a","n":1}`: false,
		`{"a":"a","p":1}`: false, `{"a":"a","q":{"a":"x"}}`: false, `{"b":1}`: false, `{"a":"b"}`: false, `{"a":"aaa"}`: false, `{"a":"a","g":2}`: false,
	} {
		if got := rules.plain.holds(decoded(t, text)); got != want {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := wire.DecodeJSON([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}
