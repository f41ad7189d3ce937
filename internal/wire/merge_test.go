package wire

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"

	"github.com/kemudi/kemudi/internal/layout"
)

// randomValue is some JSON value.
func randomValue(r *rand.Rand, depth int) any {
	n := r.IntN(8)
	if depth == 0 {
		n = r.IntN(5)
	}
	switch n {
	case 0:
		return nil
	case 1:
		return []any{true, "x<", 1.5, "é\n", false}[r.IntN(5)]
	case 2:
		return float64(r.IntN(9))
	case 3, 4:
		return "text"
	case 5:
		list := []any{}
		for range r.IntN(3) {
			list = append(list, randomValue(r, depth-1))
		}
		return list
	}
	return randomObject(r, depth-1)
}

func randomObject(r *rand.Rand, depth int) map[string]any {
	m := map[string]any{}
	for range r.IntN(4) {
		m[[]string{"a", "b", "c", `d"`}[r.IntN(4)]] = randomValue(r, depth)
	}
	return m
}

// mergedAlike holds a merge against the library's, and reports whether there was one.
func mergedAlike(t *testing.T, doc, patch []byte) bool {
	t.Helper()
	out, ok := MergeJSON(doc, patch)
	if !ok {
		return false
	}
	wanted, err := jsonpatch.MergePatch(doc, patch)
	if err != nil {
		t.Fatalf("merged %s into %s, which the library refuses: %v", patch, doc, err)
	}
	var got, want any
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("%s into %s: got %s: %v", patch, doc, out, err)
	}
	if err := json.Unmarshal(wanted, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s into %s:\n got %s\nwant %s", patch, doc, out, wanted)
	}
	return true
}

func TestMergePatchesAreAppliedAsByTheLibrary(t *testing.T) {
	if layout.Library {
		t.Skip("all is left to the library")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	merged := 0
	const tries = 3000
	for range tries {
		doc, err := json.Marshal(randomObject(r, 4))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := json.Marshal(randomObject(r, 4))
		if err != nil {
			t.Fatal(err)
		}
		if mergedAlike(t, doc, patch) {
			merged++
		}
		mergedAlike(t, doc, spoil(r, patch))
	}
	if merged < tries {
		t.Errorf("%d of %d patches were merged, want all", merged, tries)
	}
	for _, patch := range []string{`[]`, `null`, `{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{`, ``} {
		if out, ok := MergeJSON([]byte(`{"a":{}}`), []byte(patch)); ok {
			t.Errorf("%s: got %s, want that it is left to the library", patch, out)
		}
	}
}
