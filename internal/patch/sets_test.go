package patch

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// randomElement is one of few, so that sets have some in common.
func randomElement(r *rand.Rand) fieldpath.PathElement {
	name := []string{"a", "b", "containers", "z.y/x"}[r.IntN(4)]
	scalar := value.NewValueInterface([]any{int64(-3), int64(10), int64(9), "10", "a", true}[r.IntN(6)])
	if r.IntN(100) == 0 { // what is left to the library
		name = []string{"<", "é", `"`}[r.IntN(3)]
		scalar = value.NewValueInterface([]any{1.5, nil, `"`}[r.IntN(3)])
	}
	switch r.IntN(6) {
	case 0:
		return fieldpath.PathElement{Key: &value.FieldList{{Name: "name", Value: scalar}}}
	case 1:
		return fieldpath.PathElement{Key: &value.FieldList{{Name: "port", Value: scalar}, {Name: "protocol", Value: value.NewValueInterface("TCP")}}}
	case 2:
		return fieldpath.PathElement{Value: &scalar}
	}
	return fieldpath.PathElement{FieldName: &name}
}

func randomSet(r *rand.Rand) *fieldpath.Set {
	set := fieldpath.NewSet()
	for range r.IntN(12) {
		var path fieldpath.Path
		for range 1 + r.IntN(4) {
			path = append(path, randomElement(r))
		}
		set.Insert(path)
	}
	return set
}

func inJSON(t *testing.T, set *fieldpath.Set) []byte {
	t.Helper()
	text, err := set.ToJSON()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func bare(text []byte) string { return string(text[1 : len(text)-1]) }

// setsAlike holds a change of a written set against the library's, and reports whether
// it was made without the library.
func setsAlike(t *testing.T, before []byte, ch change, own bool) bool {
	t.Helper()
	got, ok := (&setWriter{}).quickly(before, ch, own)
	if !ok {
		return false
	}
	want, err := afterSet(before, ch, own)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s with %+v, own %v:\n got %s\nwant %s, %v", before, ch, own, got, want, err)
	}
	return true
}

func TestWrittenSetsChangeAsTheLibraryChangesThem(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	const tries = 5000
	quick := 0
	for range tries {
		before := inJSON(t, randomSet(r))
		ch := change{set: bare(inJSON(t, randomSet(r))), removed: bare(inJSON(t, randomSet(r)))}
		for _, own := range []bool{true, false} {
			if setsAlike(t, before, ch, own) {
				quick++
			}
			spoilt := bytes.Clone(before)
			spoilt[r.IntN(len(spoilt))] = `{}":,.f k\1`[r.IntN(10)]
			if _, err := readSet(spoilt); err == nil { // others are not stored
				setsAlike(t, spoilt, ch, own)
			}
		}
	}
	if quick < tries/10 {
		t.Errorf("%d of %d sets were changed without the library, want a tenth at least", quick, 2*tries)
	}
}

func TestUsualSetsAreChangedWithoutTheLibrary(t *testing.T) {
	before := `{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:status":{"f:conditions":{"k:{\"type\":\"Ready\"}":{".":{},"f:status":{}}},` +
		`"f:podIPs":{".":{},"k:{\"ip\":\"10.1.0.1\"}":{".":{},"f:ip":{}}}},"f:spec":{}}`
	for _, c := range []struct {
		set, removed string
		own          bool
	}{
		{set: `"f:status":{"f:podIPs":{"k:{\"ip\":\"10.1.0.2\"}":{".":{},"f:ip":{}}}}`, removed: `"f:status":{"f:podIPs":{"k:{\"ip\":\"10.1.0.1\"}":{".":{},"f:ip":{}}}}`, own: true},
		{set: `"f:metadata":{"f:labels":{".":{},"f:app":{}}}`},
		{removed: `"f:metadata":{"f:labels":{"f:app":{}}}`},
	} {
		if !setsAlike(t, []byte(`{"f:a":{},`+before[1:len(before)-len(`,"f:spec":{}}`)]+`}`), change{c.set, c.removed}, c.own) {
			t.Errorf("%+v was left to the library", c)
		}
	}
	if setsAlike(t, []byte(before), change{set: `"f:x":{}`}, true) {
		t.Error("a set in another order was not left to the library")
	}
	if got, ok := (&setWriter{}).quickly([]byte(`{"f:a":{"f:b":{}}}`), change{removed: `"f:a":{"f:b":{}}`}, true); !ok || len(got) > 0 {
		t.Errorf("got %s, %v of a set of which all was removed, want nothing", got, ok)
	}
}

func FuzzSets(f *testing.F) {
	f.Add([]byte(`{"f:a":{".":{},"k:{\"name\":\"x\"}":{}},"v:1":{}}`), `"f:a":{}`, `"f:b":{"v:\"x\"":{}}`, true)
	f.Add([]byte(`{"k:{\"a\":-1,\"b\":true}":{".":{},"f:c":{}}}`), ``, `"k:{\"a\":-1,\"b\":true}":{}`, false)
	f.Fuzz(func(t *testing.T, before []byte, set, removed string, own bool) {
		for _, text := range [][]byte{before, []byte("{" + set + "}"), []byte("{" + removed + "}")} {
			if _, err := readSet(text); err != nil {
				return // package patch lets no such set in, and makes none
			}
		}
		setsAlike(t, before, change{set, removed}, own)
	})
}
