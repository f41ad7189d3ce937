package apiserver

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/store"
)

// asked is the answer to a list in one line: its revision as it is called in
// revs, the names, and how many follow; or the code of the refusal.
func asked(t *testing.T, f *fixture, revs map[string]string, query url.Values) string {
	t.Helper()
	w := f.ask("GET", mapsPath+"?"+query.Encode(), "")
	if w.Code != 200 {
		return fmt.Sprint(w.Code)
	}
	list := decoded[metav1.PartialObjectMetadataList](t, w.Body.String())
	at := list.ResourceVersion
	for name, rev := range revs {
		if rev == at {
			at = name
		}
	}
	out := []string{at + ":"}
	for _, it := range list.Items {
		out = append(out, it.Name)
	}
	if list.RemainingItemCount != nil {
		out = append(out, fmt.Sprintf("+%d", *list.RemainingItemCount))
	}
	if (list.Continue != "") != (list.RemainingItemCount != nil) {
		t.Errorf("%v: got continue %q with %v remaining", query, list.Continue, list.RemainingItemCount)
	}
	return strings.Join(out, " ")
}

// TestListsFollowTheTableOfResourceVersions goes through upstream's table row by
// row: what a list shows by resourceVersionMatch, limit, continue and
// resourceVersion. Where any state or a newer one will do it is the newest here.
func TestListsFollowTheTableOfResourceVersions(t *testing.T) {
	f := newFixture(t)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"a"}}`)
	then := decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, `{"metadata":{"name":"b"}}`)).ResourceVersion
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"c"}}`)
	newest := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?limit=1", ""))
	revs := map[string]string{"then": then, "now": newest.ResourceVersion}
	for _, row := range []struct {
		match              string
		limit, goesOn      bool
		unset, zero, other string // by resourceVersion; the other is then
	}{
		{"", false, false, "now: a b c", "now: a b c", "now: a b c"},
		{"", true, false, "now: a +2", "now: a +2", "then: a +1"},
		{"", true, true, "now: b +1", "now: b +1", "400"},
		{"Exact", false, false, "422", "422", "then: a b"},
		{"Exact", true, false, "422", "422", "then: a +1"},
		{"Exact", true, true, "422", "422", "422"},
		{"NotOlderThan", false, false, "422", "now: a b c", "now: a b c"},
		{"NotOlderThan", true, false, "422", "now: a +2", "now: a +2"},
		{"NotOlderThan", true, true, "422", "422", "422"},
	} {
		for rev, want := range map[string]string{"": row.unset, "0": row.zero, then: row.other} {
			query := url.Values{}
			if row.match != "" {
				query.Set("resourceVersionMatch", row.match)
			}
			if row.limit {
				query.Set("limit", "1")
			}
			if row.goesOn {
				query.Set("continue", newest.Continue)
			}
			if rev != "" {
				query.Set("resourceVersion", rev)
			}
			if got := asked(t, f, revs, query); got != want {
				t.Errorf("%s: got %s, want %s", query.Encode(), got, want)
			}
		}
	}
	exact := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?limit=1&resourceVersion="+then, ""))
	if got := asked(t, f, revs, url.Values{"limit": {"1"}, "continue": {exact.Continue}}); got != "then: b" {
		t.Errorf("the rest of a list of a revision: got %s, want then: b", got)
	}
	if got := asked(t, f, revs, url.Values{"limit": {"1"}, "resourceVersion": {then}, "fieldSelector": {"metadata.name=c"}}); got != "now: c" {
		t.Errorf("a list of one object: got %s, want now: c", got)
	}
	everywhere := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", "/api/v1/configmaps?limit=1", ""))
	rest := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", "/api/v1/configmaps?limit=1&continue="+everywhere.Continue, ""))
	if a, b := everywhere.RemainingItemCount, rest.RemainingItemCount; a == nil || *a != 2 || b == nil || *b != 1 {
		t.Errorf("what remains of the pages of all namespaces: got %v and %v, want 2 and 1", a, b)
	}
	if got := asked(t, f, revs, url.Values{"limit": {"1"}, "resourceVersion": {"1000000"}}); got != "504" {
		t.Errorf("a revision that is to come: got %s, want 504", got)
	}
}

// readStore counts the values that lists read from it.
type readStore struct {
	store.Store
	values atomic.Int64
}

func (s *readStore) List(ctx context.Context, prefix string, o store.ListOptions) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, o)
	s.values.Add(int64(len(page.KVs)))
	return page, err
}

// TestStatesOfLateAreNotReadFromTheStore: the pages of a list, and lists of a
// revision that is not long past, are shown by the cache as things were then.
func TestStatesOfLateAreNotReadFromTheStore(t *testing.T) {
	counted := &readStore{Store: newStore(t)}
	f := newFixture(t, func(o *Options) { o.Store = counted })
	var revs [4]string
	for i, name := range []string{"a", "b", "c", "d"} {
		revs[i] = decoded[metav1.PartialObjectMetadata](t, f.must(201, "POST", mapsPath, `{"metadata":{"name":"`+name+`"}}`)).ResourceVersion
	}
	first := decoded[metav1.PartialObjectMetadataList](t, f.must(200, "GET", mapsPath+"?limit=2", ""))
	f.must(200, "DELETE", mapsPath+"/c", "")
	f.must(200, "PUT", mapsPath+"/d", `{"metadata":{"name":"d","labels":{"is":"new"}}}`)
	f.must(201, "POST", mapsPath, `{"metadata":{"name":"e"}}`)
	known := map[string]string{"first": first.ResourceVersion, "b": revs[1], "c": revs[2]}
	before := counted.values.Load()
	for query, want := range map[string]string{
		"limit=1&continue=" + first.Continue:                                 "first: c +1",
		"continue=" + first.Continue:                                         "first: c d",
		"labelSelector=is!%3Dnew&continue=" + first.Continue:                 "first: c d",
		"fieldSelector=metadata.name%3Dc&limit=1&continue=" + first.Continue: "first: c",
		"resourceVersionMatch=Exact&resourceVersion=" + revs[1]:              "b: a b",
		"limit=2&resourceVersion=" + revs[2]:                                 "c: a b +1",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := asked(t, f, known, values); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	if n := counted.values.Load() - before; n != 0 {
		t.Errorf("%d values were read from the store", n)
	}
}
