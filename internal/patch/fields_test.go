package patch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/randfill"

	"github.com/kemudi/kemudi/internal/api"
	"github.com/kemudi/kemudi/internal/resource"
)

func filler(seed int64) *randfill.Filler {
	words := []string{"a", "b", "c", "web", "x/y", "<&>", `q"`, "日本", ""}
	return randfill.NewWithSeed(seed).NilChance(.4).NumElements(0, 3).MaxDepth(10).Funcs(
		func(s *string, c randfill.Continue) {
			if *s = words[c.Intn(len(words))]; c.Intn(3) > 0 {
				*s += fmt.Sprint(c.Intn(50))
			}
		},
		func(n *int32, c randfill.Continue) { *n = int32(c.Intn(50)) },
		func(n *int64, c randfill.Continue) { *n = int64(c.Intn(50)) },
		func(q *quantity.Quantity, c randfill.Continue) {
			*q = *quantity.NewQuantity(c.Int63n(3), quantity.BinarySI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(int32(c.Intn(3))) },
		func(t *metav1.Time, c randfill.Continue) {
			if *t = metav1.NewTime(time.Unix(int64(c.Intn(3)), 0)); c.Intn(4) == 0 {
				*t = metav1.Time{} // which JSON shows as null
			}
		},
		func(t *metav1.MicroTime, c randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(int64(c.Intn(3)), 0))
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte("{}")) },
		func(r *runtime.RawExtension, c randfill.Continue) {
			r.Raw = []byte([]string{`{"a":1}`, `{"b":[1]}`}[c.Intn(2)])
		},
		func(o *runtime.Object, _ randfill.Continue) { *o = nil },
		func(m *[]metav1.ManagedFieldsEntry, _ randfill.Continue) { *m = nil },
	)
}

// chance is where a test's random objects come from; KEMUDI_SEED repeats those of
// an earlier run.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	seed := time.Now().UnixNano()
	if given := os.Getenv("KEMUDI_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseInt(given, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("KEMUDI_SEED=%d", seed)
	return rand.New(rand.NewSource(seed))
}

// mix takes over some fields of src into dst, down to the members of lists.
func mix(r *rand.Rand, dst, src reflect.Value) {
	switch {
	case !dst.CanSet():
	case dst.Kind() == reflect.Struct && r.Intn(4) > 0:
		for i := range dst.NumField() {
			mix(r, dst.Field(i), src.Field(i))
		}
	case dst.Kind() == reflect.Slice && dst.Len() > 0 && dst.Type().Elem().Kind() != reflect.Uint8 && r.Intn(4) > 0:
		for i := range min(dst.Len(), src.Len()) {
			mix(r, dst.Index(i), src.Index(i))
		}
		if r.Intn(3) == 0 {
			dst.Set(dst.Slice(0, dst.Len()-1))
		}
	case r.Intn(3) == 0:
		dst.Set(src)
	}
}

func random(d *resource.Def, r *rand.Rand) resource.Object {
	obj := d.New()
	filler(r.Int63()).Fill(obj)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	obj.SetManagedFields(nil)
	return obj
}

// canonical returns the object as it is when read from JSON. The library finds
// differences within lists that JSON does not show (nil or empty); ours does not.
func canonical(t *testing.T, d *resource.Def, obj resource.Object) resource.Object {
	t.Helper()
	doc, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	out := d.New()
	if err := json.Unmarshal(doc, out); err != nil {
		t.Fatal(err)
	}
	out.SetManagedFields(obj.GetManagedFields()) // as they are: encoding/json escapes what is in them
	return out
}

func TestOwnershipEqualsTheLibrarys(t *testing.T) {
	f := NewFields()
	for _, d := range api.All() {
		if !d.Stored() {
			continue
		}
		t.Run(d.String(), func(t *testing.T) {
			r := chance(t)
			ours, all := 0, 0
			for range 20 {
				live := canonical(t, d, random(d, r))
				w := Write{Def: d, GV: d.GVK().GroupVersion(), Manager: "one"}
				live.SetUID("")
				got, want := live.DeepCopyObject().(resource.Object), live.DeepCopyObject().(resource.Object)
				err := f.update(w, d.New(), got)
				if !library(t, f, w, d.New(), want) {
					continue
				}
				all++
				if err == nil {
					ours++
					compare(t, w, got, want)
				}
				live = want
				live.SetUID("u")
				for range 4 {
					obj := live.DeepCopyObject().(resource.Object)
					mix(r, reflect.ValueOf(obj).Elem(), reflect.ValueOf(random(d, r)).Elem())
					obj.SetManagedFields(live.GetManagedFields())
					obj.SetUID("u")
					obj = canonical(t, d, obj)
					live = canonical(t, d, live)
					w.Manager = []string{"one", "two", "three"}[r.Intn(3)]
					if w.Sub = ""; d.Subresource("status") != nil && r.Intn(2) == 0 {
						w.Sub = "status"
					}
					if len(d.Versions) > 0 && r.Intn(4) == 0 {
						v := d.Versions[r.Intn(len(d.Versions))]
						w.GV = schema.GroupVersion{Group: v.Group, Version: v.Version}
					}
					got, want := obj.DeepCopyObject().(resource.Object), obj.DeepCopyObject().(resource.Object)
					err := f.update(w, live, got)
					if !library(t, f, w, live, want) || !roundTrips(d, live) || !roundTrips(d, obj) {
						live = want
						continue
					}
					all++
					if err == nil {
						ours++
						compare(t, w, got, want)
					}
					live = want
				}
			}
			t.Logf("%d of %d without the library", ours, all)
			if all == 0 || ours < all/3 {
				_, err := f.node(d, d.GVK().GroupVersion())
				t.Errorf("only %d of %d writes were done without the library: %v", ours, all, err)
			}
		})
	}
}

// roundTrips reports that an object is the same after a conversion to each
// version and back, through what that version is written as: an empty list may be left
// out there. The library compares what came back; ours needs no way back.
func roundTrips(d *resource.Def, obj resource.Object) bool {
	want, _ := json.Marshal(obj)
	for _, v := range d.Versions {
		there, err := v.From(obj)
		if err != nil {
			return false
		}
		text, err := json.Marshal(there)
		if err != nil {
			return false
		}
		read := reflect.New(reflect.TypeOf(there).Elem()).Interface().(resource.Object)
		if err := json.Unmarshal(text, read); err != nil {
			return false
		}
		back, err := v.To(read)
		if err != nil {
			return false
		}
		got, _ := json.Marshal(back)
		if !bytes.Equal(got, want) {
			return false
		}
	}
	return true
}

// library has the library do the update; false: the random object has parts
// that it cannot deal with.
func library(t *testing.T, f *Fields, w Write, live, obj resource.Object) bool {
	m, err := f.manager(w)
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Update(live, obj, w.Manager)
	return err == nil
}

func compare(t *testing.T, w Write, got, want resource.Object) {
	t.Helper()
	g, x := describe(got), describe(want)
	if g != x {
		t.Fatalf("%v %s by %s:\n got %s\nwant %s", w.GV, w.Sub, w.Manager, g, x)
	}
}

func describe(obj resource.Object) string {
	var lines []string
	for _, e := range obj.GetManagedFields() {
		lines = append(lines, fmt.Sprintf("\n  %s %s %s %q %s", e.Manager, e.Operation, e.APIVersion, e.Subresource, e.FieldsV1.GetRawString()))
	}
	slices.Sort(lines) // they are in the order of their times, which may differ by the second that passed
	return strings.Join(lines, "")
}
