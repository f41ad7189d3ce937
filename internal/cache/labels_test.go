package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/resource"
)

// labelledDef is of objects that are found by their labels.
func labelledDef() *resource.Def {
	return resource.Define(resource.Spec[*corev1.ConfigMap]{
		Names:   resource.Names{Version: "v1", Kind: "Labelled", Plural: "labelleds", Namespaced: true},
		Caching: resource.Caching[*corev1.ConfigMap]{ByLabels: true},
	}).Def
}

// TestSelectorsFindWhatAllAreLookedAtFor has random changes, and holds what the index finds to what a
// look at all objects does.
func TestSelectorsFindWhatAllAreLookedAtFor(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := New(labelledDef(), &Progress{})
	object := func(rev int64) *Item {
		namespace, name := fmt.Sprint("ns", rnd.IntN(2)), fmt.Sprint("o", rnd.IntN(300))
		set := map[string]string{}
		for _, key := range []string{"app", "tier", "hash"} {
			if rnd.IntN(4) > 0 {
				set[key] = fmt.Sprint(rnd.IntN(12))
			}
		}
		return &Item{Key: Key(namespace, name), Rev: rev, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: set}}}
	}
	c.Replace(nil, 1)
	indexed := 0
	for rev := int64(2); rev < 3000; rev++ {
		it := object(rev)
		c.Apply([]Change{{Item: it, Delete: rnd.IntN(3) == 0}})
		if rnd.IntN(500) == 0 { // a relist that misses some
			some := slices.DeleteFunc(c.List("", nil), func(*Item) bool { return rnd.IntN(3) == 0 })
			c.Replace(some, rev)
		}
		for _, text := range []string{"app=3", "app=3,tier=4", "app=3,tier!=4", "app in (3),hash", "app in (3,4)", "!app", "tier=none"} {
			sel, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			var want []*Item
			c.Snapshot().Scan("ns1", "", func(it *Item) bool {
				if sel.Matches(labels.Set(it.Object.GetLabels())) {
					want = append(want, it)
				}
				return true
			})
			if got := c.List("ns1", sel); !slices.Equal(got, want) {
				t.Fatalf("revision %d, %s: got %d objects, want %d", rev, text, len(got), len(want))
			}
			if items, ok := c.byLabels("ns1", sel); ok && len(items) > 0 {
				indexed++
			}
		}
	}
	if indexed < 1000 {
		t.Errorf("the index was asked %d times, want many", indexed)
	}
	c.Replace(nil, 3000)
	if x := c.mu.labels; len(x.groups) != 0 || len(x.pairs) != 0 {
		t.Errorf("got %d groups and %d pairs without objects", len(x.groups), len(x.pairs))
	}
}
