package wire

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	kjson "sigs.k8s.io/json"

	"github.com/kemudi/kemudi/internal/layout"
	"github.com/kemudi/kemudi/internal/layout/layouttest"
)

// readAlike holds what is read of a document by plan against what the library reads,
// and reports whether the plan has read it.
func readAlike(t *testing.T, typ reflect.Type, doc []byte) bool {
	t.Helper()
	got, want := reflect.New(typ), reflect.New(typ)
	if !readJSON(doc, got.Interface()) {
		if !got.Elem().IsZero() {
			t.Fatalf("%v: got %+v of what was left to the library: %s", typ, got.Elem(), doc)
		}
		return false
	}
	strict, err := kjson.UnmarshalStrict(doc, want.Interface())
	if err != nil || len(strict) > 0 {
		t.Fatalf("%v: read what the library has something against: %v %v: %s", typ, err, strict, doc)
	}
	if !reflect.DeepEqual(got.Interface(), want.Interface()) {
		t.Fatalf("%v: %s\n got %+v\nwant %+v", typ, doc, got.Elem(), want.Elem())
	}
	return true
}

// spoil changes a byte of a document, or takes some away, or says some twice.
func spoil(r *rand.Rand, doc []byte) []byte {
	if len(doc) == 0 {
		return doc
	}
	i, n := r.IntN(len(doc)), 1+r.IntN(min(8, len(doc)))
	j := min(len(doc), i+n)
	switch r.IntN(4) {
	case 0:
		return append(append([]byte{}, doc[:i]...), doc[j:]...)
	case 1:
		return append(append([]byte{}, doc[:j]...), doc[i:]...)
	case 2:
		const marks = "{}[],:\"\\ \n\t0-.eEtfnu/\x01\xffé"
		out := append([]byte{}, doc...)
		out[i] = marks[r.IntN(len(marks))]
		return out
	}
	return append(append(append([]byte{}, doc[:i]...), ' '), doc[i:]...)
}

func TestJSONIsReadAsByTheLibraryForEveryKind(t *testing.T) {
	if layout.Library {
		t.Skip("all is left to the library")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	read, spoilt, docs := 0, 0, 0
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		f := filler(int64(seed))
		for range 10 {
			v := reflect.New(typ).Interface()
			f.Fill(v)
			doc, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			docs++
			if readAlike(t, typ, doc) {
				read++
			}
			for range 20 {
				if readAlike(t, typ, spoil(r, doc)) {
					spoilt++
				}
			}
		}
	}
	if read < docs/2 || spoilt == 0 {
		t.Errorf("%d of %d documents were read by plan, and %d spoilt ones, want most and some", read, docs, spoilt)
	}
}

func TestJSONOfRandomTypesIsReadAsByTheLibrary(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, f := rand.New(rand.NewPCG(seed, 0)), filler(int64(seed))
	for range 1000 {
		typ := layouttest.Struct(r)
		v := reflect.New(typ).Interface()
		f.Fill(v)
		doc, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%v: %v", typ, err)
		}
		readAlike(t, typ, doc)
		readAlike(t, typ, spoil(r, doc))
	}
}

func TestUsualDocumentsAreReadByPlan(t *testing.T) {
	if layout.Library {
		t.Skip("all is left to the library")
	}
	usual, err := AppendJSON(nil, usualPod())
	if err != nil {
		t.Fatal(err)
	}
	for doc, want := range map[string]bool{
		string(usual): true,
		" { \"kind\" : \"Pod\" ,\n\t\"metadata\" : { \"labels\" : { } , \"finalizers\" : [ ] } }\r\n": true,
		`{"metadata":{"name":"a\"\\\/\n\u00e9é"},"spec":null}`:                                        true,
		`{"spec":{"overhead":null,"volumes":null,"priority":-0,"containers":[]}}`:                     true,
		`{"metadata":{"name":"a","name":"b"}}`:                                                        false, // twice
		`{"metadata":{"labels":{"a":"b","a":"b"}}}`:                                                   false,
		`{"Metadata":{}}`:                                                 false, // unknown
		`{"metadata":{"name":"\ud83d\ude00"}}`:                            false, // two escapes for one character
		`{"metadata":{"name":"` + "\xff" + `"}}`:                          false, // no text
		`{"metadata":{"name":1}}`:                                         false,
		`{"metadata":{"generation":1.0}}`:                                 false,
		`{"metadata":{"generation":01}}`:                                  false,
		`{"metadata":{"deletionGracePeriodSeconds":9223372036854775808}}`: false,
		`{"spec":{"priority":2147483648}}`:                                false,
		`{"metadata":{}},`:                                                false,
		`{"metadata":{},}`:                                                false,
		`{"metadata":{"finalizers":["a",]}}`:                              false,
		``:                                                                false,
		`{`:                                                               false,
	} {
		if got := readAlike(t, reflect.TypeFor[corev1.Pod](), []byte(doc)); got != want {
			t.Errorf("%q: read by plan %v, want %v", doc, got, want)
		}
	}
}

func TestDocumentsWithoutATypeAreReadAsByTheLibrary(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, doc := range []string{
		`{"a":[1,-2.5,1e3,true,false,null,"x",{}],"b":{"c":[]},"d":12345678901234567890}`, `null`, `{"a":{"b":{"a":"b"}}}`, `[]`, `"x"`,
	} {
		readAlike(t, reflect.TypeFor[map[string]any](), []byte(doc))
		for range 500 {
			readAlike(t, reflect.TypeFor[map[string]any](), spoil(r, []byte(doc)))
			readAlike(t, reflect.TypeFor[any](), spoil(r, []byte(doc)))
		}
	}
}

func TestWhatIsThereAlreadyIsLeftToTheLibrary(t *testing.T) {
	pod := &corev1.Pod{}
	pod.Labels = map[string]string{"a": "b"}
	if readJSON([]byte(`{"metadata":{"labels":{"c":"d"}}}`), pod) {
		t.Errorf("got %v, want that the library reads into what is there", pod.Labels)
	}
	if err := DecodeJSON([]byte(`{"metadata":{"labels":{"c":"d"}}}`), pod); err != nil || len(pod.Labels) != 2 {
		t.Errorf("got %v, %v, want both labels", pod.Labels, err)
	}
}

func FuzzRead(f *testing.F) {
	usual, err := AppendJSON(nil, usualPod())
	if err != nil {
		f.Fatal(err)
	}
	for _, doc := range []string{string(usual), `{"metadata":{"name":"\u00e9"}}`, `{"spec":{"containers":[{"ports":[{}]}]}}`, `{"a":[{}]}`} {
		f.Add([]byte(doc))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		readAlike(t, reflect.TypeFor[corev1.Pod](), doc)
		readAlike(t, reflect.TypeFor[any](), doc)
	})
}
