package wire

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/kemudi/kemudi/internal/layout/layouttest"
)

func filler(seed int64) *randfill.Filler {
	odd := []string{"", "a", "plain text", `q"uo\te`, "<&>", "\u2028\u2029", "tab\tnl\n\b\f\r\x01", "\xff\xfe", "日本語", "\x7f"}
	return randfill.NewWithSeed(seed).NilChance(.5).NumElements(0, 3).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) { *s = odd[c.Intn(len(odd))] + c.String(8) },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(1e12), resource.BinarySI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) {
			if *v = intstr.FromInt32(c.Int31()); c.Bool() {
				*v = intstr.FromString(odd[c.Intn(len(odd))])
			}
		},
		func(f *metav1.FieldsV1, c randfill.Continue) {
			f.SetRawBytes([]byte([]string{`{}`, `{"f:a":{".":{}}}`, `{"k:{\"a\":\"<\"}": {}}`, ``}[c.Intn(4)]))
		},
		func(t *metav1.Time, c randfill.Continue) {
			if *t = (metav1.Time{}); c.Bool() {
				*t = metav1.NewTime(time.Unix(c.Int63n(4e9), c.Int63n(1e9)))
			}
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(c.Int63n(4e9), c.Int63n(1e9)))
		},
		func(r *runtime.RawExtension, c randfill.Continue) {
			*r = runtime.RawExtension{Raw: []byte([]string{`{ "a" : "<b>" }`, `{}`, `[1, 2]`}[c.Intn(3)])}
		},
		func(u *runtime.Unknown, _ randfill.Continue) {
			u.Raw, u.ContentType = []byte(`{"a": 1}`), runtime.ContentTypeJSON
		},
		func(o *runtime.Object, _ randfill.Continue) { *o = nil },
		func(t *time.Time, c randfill.Continue) { *t = time.Unix(c.Int63n(4e9), c.Int63n(1e9)) },
		func(a *any, c randfill.Continue) {
			*a = []any{"x", int64(3), true, nil, 1.5, map[string]any{"<": []any{}}}
		},
	)
}

func TestJSONEqualsTheStandardLibraryForEveryKind(t *testing.T) {
	seed, compared := int64(rand.Uint64()), 0
	t.Logf("seed %d", seed)
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		f := filler(seed)
		for range 20 {
			v := reflect.New(typ).Interface()
			f.Fill(v)
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%v: %v", gvk, err)
			}
			got, err := AppendJSON(nil, v)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%v: %v\n got %s\nwant %s", gvk, err, got, want)
			}
			compared += len(want)
		}
	}
	if compared < 8<<20 { // by the seed it is 9 to 12 MiB
		t.Errorf("compared %d bytes, want at least 8 MiB", compared)
	}
}

func TestJSONEqualsTheStandardLibraryForRandomTypes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r, f := rand.New(rand.NewPCG(seed, 0)), filler(int64(seed))
	for range 1000 {
		typ := layouttest.Struct(r)
		for range 4 {
			v := reflect.New(typ).Interface()
			f.Fill(v)
			want, err := json.Marshal(v)
			if err != nil {
				t.Fatalf("%v: %v", typ, err)
			}
			got, err := AppendJSON(nil, v)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%v: %v\n got %s\nwant %s", typ, err, got, want)
			}
		}
	}
}

func FuzzStringEqualsTheStandardLibrary(f *testing.F) {
	for _, s := range []string{"", "a<b>&c", "\u2028", "\xff", "\x00\x1f\x7f", `"\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		want, _ := json.Marshal(s)
		if got := AppendString(nil, s); !bytes.Equal(got, want) {
			t.Errorf("AppendString(%q): got %s, want %s", s, got, want)
		}
	})
}

func TestEveryByteIsEscapedWhereverItStands(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			s := []byte("abcdefghijklmnopqrst")
			s[at] = byte(c)
			want, err := json.Marshal(string(s))
			if err != nil {
				t.Fatal(err)
			}
			if got := AppendString(nil, string(s)); !bytes.Equal(got, want) {
				t.Errorf("%q: got %s, want %s", s, got, want)
			}
			compact := c > ' ' && c < 0x80 && c != '<' && c != '>' && c != '&'
			if got := isCompact(s); got != compact {
				t.Errorf("isCompact(%q): got %t, want %t", s, got, compact)
			}
		}
	}
}

func TestQuantitiesAreWrittenAsTheLibraryDoes(t *testing.T) {
	if !isKept {
		t.Error("a Quantity does not keep its text any more: it is written by the library")
	}
	for _, text := range []string{"0", "1", "100m", "128Mi", "1.5Gi", "1e3", "12345678901234567890", "0.000000001", "-5", "+5", "1e0", "1.0", "1.250", "01", "1023", "1024Ki", "123456789012345678901234567890123456789012345678"} {
		q := resource.MustParse(text)
		fresh := q.DeepCopy()
		want, err := json.Marshal(&q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := AppendJSON(make([]byte, 0, 3), &fresh)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: got %s, %v; want %s", text, got, err, want)
		}
		fresh.Add(resource.Quantity{}) // it forgets its text
		want, _ = json.Marshal(fresh.DeepCopy())
		before := fresh
		if got, err := AppendJSON(nil, &fresh); err != nil || !bytes.Equal(got, want) || fresh != before {
			t.Errorf("%s plus nothing: got %s, %v; want %s, and that it is only read", text, got, err, want)
		}
	}
}
