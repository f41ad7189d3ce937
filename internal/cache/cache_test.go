package cache

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/resource"
)

// things are objects with a color label, by which they are indexed; a comma
// separates several colors.
var things = resource.Define(resource.Spec[*corev1.ConfigMap]{
	Names: resource.Names{Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Namespaced: true},
	Index: map[string]func(*corev1.ConfigMap) []string{
		"color": func(o *corev1.ConfigMap) []string {
			if o.Annotations["color"] == "" {
				return nil
			}
			return strings.Split(o.Annotations["color"], ",")
		},
	},
})

// thing makes an Item from "namespace/name" or "namespace/name color".
func thing(rev int64, text string) *Item {
	key, color, _ := strings.Cut(text, " ")
	namespace, name, _ := strings.Cut(key, "/")
	return &Item{Key: key, Rev: rev, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(key), ResourceVersion: strconv.FormatInt(rev, 10),
		Annotations: map[string]string{"color": color}, Labels: map[string]string{"first": key[:1]},
	}}}
}

func items(rev int64, texts ...string) []*Item {
	var out []*Item
	for _, t := range texts {
		out = append(out, thing(rev, t))
	}
	return out
}

// filled is a synced cache at revision 10.
func filled(texts ...string) *Cache {
	c := New(things.Def, &Progress{})
	c.Replace(items(10, texts...), 10)
	c.Progress.Advance(10)
	return c
}

// feed applies one change in one batch: "a/b blue" or "-a/b".
func feed(c *Cache, rev int64, texts ...string) {
	var changes []Change
	for _, t := range texts {
		if key, ok := strings.CutPrefix(t, "-"); ok {
			if it := c.Get(key); it != nil {
				changes = append(changes, Gone(it, rev))
			}
			continue
		}
		changes = append(changes, Change{Item: thing(rev, t)})
	}
	c.Apply(changes)
	c.Progress.Advance(rev)
}

func describe(events []Event) string {
	var out []string
	for _, e := range events {
		s := fmt.Sprintf("%s %s@%d", e.Type, e.Item.Key, e.Item.Rev)
		if e.Item.Object.GetResourceVersion() != strconv.FormatInt(e.Item.Rev, 10) {
			s += " with resourceVersion " + e.Item.Object.GetResourceVersion()
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func keys(items []*Item) string {
	var out []string
	for _, it := range items {
		out = append(out, it.Key)
	}
	return strings.Join(out, " ")
}

func next(t *testing.T, cu *Cursor) string {
	t.Helper()
	events, err := cu.Next()
	if err != nil {
		t.Fatalf("Next: %v", err)
	}
	return describe(events)
}

func cursor(t *testing.T, c *Cache, o CursorOptions) *Cursor {
	t.Helper()
	cu, err := c.Cursor(o)
	if err != nil {
		t.Fatalf("Cursor(%+v): %v", o, err)
	}
	t.Cleanup(cu.Close)
	return cu
}

func isReady(cu *Cursor) bool {
	select {
	case <-cu.Ready():
		return true
	default:
		return false
	}
}

// TestMinorChangesAreForLater tells who asks for it which changes nobody waits for.
func TestMinorChangesAreForLater(t *testing.T) {
	calm := resource.Define(resource.Spec[*corev1.ConfigMap]{
		Names:   resource.Names{Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Namespaced: true},
		Caching: resource.Caching[*corev1.ConfigMap]{Minor: func(was, is *corev1.ConfigMap) bool { return was.Annotations["color"] == is.Annotations["color"] }},
	})
	c := New(calm.Def, &Progress{})
	c.Replace(items(10, "a/x blue"), 10)
	c.Progress.Advance(10)
	plain, cu := cursor(t, c, CursorOptions{After: 10}), cursor(t, c, CursorOptions{After: 10})
	var told []string
	cu.Notify(func() { told = append(told, "now") }, func() { told = append(told, "later") })
	feed(c, 11, "a/x blue")
	feed(c, 12, "a/x red")
	feed(c, 13, "a/y red")
	feed(c, 14, "a/y red")
	feed(c, 15, "-a/y")
	if got, want := strings.Join(told, " "), "later now now later now"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !isReady(plain) {
		t.Error("who asked for nothing is not told")
	}
	if got, want := next(t, cu), next(t, plain); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReadsFindWhatWasFed(t *testing.T) {
	c := filled("b/x blue", "a/y red,blue", "a/x", "ab/z")
	feed(c, 11, "-a/x", "c/q blue")
	if got := c.Get("a/y"); got == nil || got.Rev != 10 {
		t.Errorf("Get a/y: got %+v", got)
	}
	if got := c.Get("a/x"); got != nil {
		t.Errorf("Get of the deleted a/x: got %+v", got)
	}
	if got, want := keys(c.List("", nil)), "a/y ab/z b/x c/q"; got != want || c.Len() != 4 {
		t.Errorf("List: got %s (%d), want %s", got, c.Len(), want)
	}
	if got, want := keys(c.List("a", nil)), "a/y"; got != want {
		t.Errorf("List of namespace a: got %s, want %s", got, want)
	}
	if got, want := keys(c.List("", labels.SelectorFromSet(labels.Set{"first": "a"}))), "a/y ab/z"; got != want {
		t.Errorf("List by label: got %s, want %s", got, want)
	}
	blue := c.ByIndex("color", "blue")
	slices.SortFunc(blue, func(a, b *Item) int { return strings.Compare(a.Key, b.Key) })
	if got, want := keys(blue), "a/y b/x c/q"; got != want {
		t.Errorf("ByIndex blue: got %s, want %s", got, want)
	}
	if got := c.ByIndex("color", "green"); len(got) != 0 {
		t.Errorf("ByIndex green: got %s, want nothing", keys(got))
	}
}

func TestSnapshotStaysAsItIs(t *testing.T) {
	c := filled("a/x", "a/y", "b/x")
	s := c.Snapshot()
	feed(c, 11, "-a/x", "a/z", "a/y blue")
	if got := keys(c.List("", nil)); got != "a/y a/z b/x" {
		t.Errorf("cache: got %s", got)
	}
	var got []*Item
	s.Scan("", "", func(it *Item) bool { got = append(got, it); return true })
	if keys(got) != "a/x a/y b/x" || s.Rev != 10 || s.Len() != 3 || s.Get("a/y").Rev != 10 || s.Get("a/z") != nil {
		t.Errorf("snapshot: got %s at %d, want the state at 10", keys(got), s.Rev)
	}
	got = nil
	s.Scan("a", "a/y", func(it *Item) bool { got = append(got, it); return false })
	if keys(got) != "a/y" {
		t.Errorf("scan from a/y until told to stop: got %s", keys(got))
	}
}

func TestCursorDeliversEachChangeOnce(t *testing.T) {
	c := filled("a/x")
	cu := cursor(t, c, CursorOptions{After: 10})
	if got := next(t, cu); got != "" || isReady(cu) {
		t.Errorf("nothing has happened: got %s", got)
	}
	feed(c, 11, "a/y")
	feed(c, 12, "a/y blue", "-a/x")
	if !isReady(cu) {
		t.Error("cursor is not ready after a change")
	}
	if got, want := next(t, cu), "ADDED a/y@11, MODIFIED a/y@12, DELETED a/x@12"; got != want || cu.Rev() != 12 {
		t.Errorf("got %s up to %d, want %s", got, cu.Rev(), want)
	}
	if got := next(t, cu); got != "" {
		t.Errorf("second read: got %s", got)
	}
	c.Progress.Advance(20)
	if got := next(t, cu); got != "" || cu.Rev() != 20 {
		t.Errorf("progress alone: got %s up to %d, want nothing up to 20", got, cu.Rev())
	}
	late := cursor(t, c, CursorOptions{After: 11})
	if !isReady(late) || next(t, late) != "MODIFIED a/y@12, DELETED a/x@12" {
		t.Error("a cursor that starts in the past does not see what followed")
	}
	cu.Close()
	cu.Close()
	feed(c, 21, "a/z")
	if isReady(cu) {
		t.Error("a closed cursor was woken")
	}
}

func TestCursorFromNowBeginsWithTheState(t *testing.T) {
	c := filled("a/x", "b/x", "b/y")
	cu := cursor(t, c, CursorOptions{FromNow: true, Namespace: "b"})
	feed(c, 11, "b/z", "a/z")
	if got, want := next(t, cu), "ADDED b/x@10, ADDED b/y@10"; got != want || cu.Rev() != 10 {
		t.Errorf("first read: got %s up to %d, want %s", got, cu.Rev(), want)
	}
	if !isReady(cu) {
		t.Error("changes during the first read do not wake the cursor")
	}
	if got, want := next(t, cu), "ADDED b/z@11"; got != want {
		t.Errorf("second read: got %s, want %s", got, want)
	}
}

func TestCursorAheadOfTheCacheSeesOnlyWhatIsNew(t *testing.T) {
	c := filled()
	cu := cursor(t, c, CursorOptions{After: 12})
	feed(c, 11, "a/x")
	feed(c, 12, "a/y")
	feed(c, 13, "a/z")
	if got, want := next(t, cu), "ADDED a/z@13"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestCursorOnAnIndexSeesExactlyThoseObjects(t *testing.T) {
	c := filled("a/x blue", "a/y red")
	cu := cursor(t, c, CursorOptions{FromNow: true, Index: "color", Value: "blue"})
	if got, want := next(t, cu), "ADDED a/x@10"; got != want {
		t.Errorf("first state: got %s, want %s", got, want)
	}
	for _, step := range []struct{ change, want string }{
		{"a/y blue", "ADDED a/y@11"},
		{"a/y blue,red", "MODIFIED a/y@12"},
		{"a/y red", "DELETED a/y@13"},
		{"a/y green", ""},
		{"a/z blue", "ADDED a/z@15"},
		{"-a/y", ""},
		{"-a/x", "DELETED a/x@17"},
	} {
		rev := c.Rev() + 1
		feed(c, rev, step.change)
		if ready := isReady(cu); ready != (step.want != "") {
			t.Errorf("%s: ready is %t", step.change, ready)
		}
		if got := next(t, cu); got != step.want || cu.Rev() != rev {
			t.Errorf("%s: got %s up to %d, want %s", step.change, got, cu.Rev(), step.want)
		}
	}
	past := cursor(t, c, CursorOptions{After: 12, Index: "color", Value: "red", Namespace: "a"})
	if got, want := next(t, past), "MODIFIED a/y@13, DELETED a/y@14"; got != want {
		t.Errorf("cursor on red from 12: got %s, want %s", got, want)
	}
}

func TestSlowCursorIsToldThatItIsTooOld(t *testing.T) {
	c := filled("a/x")
	slow := cursor(t, c, CursorOptions{After: 10})
	idle := cursor(t, c, CursorOptions{After: 10, Index: "color", Value: "blue"})
	for i := range int64(logSize + 1) {
		feed(c, 11+i, "a/x")
	}
	if _, err := slow.Next(); !errors.Is(err, ErrTooOld) {
		t.Errorf("slow cursor: got %v, want ErrTooOld", err)
	}
	if _, err := c.Cursor(CursorOptions{After: 10}); !errors.Is(err, ErrTooOld) {
		t.Errorf("new cursor from before the log: got %v, want ErrTooOld", err)
	}
	if got := next(t, cursor(t, c, CursorOptions{After: 11})); strings.Count(got, "MODIFIED") != logSize {
		t.Errorf("new cursor at the beginning of the log: got %d events, want %d", strings.Count(got, "MODIFIED"), logSize)
	}
	feed(c, 100_000, "a/x blue")
	if got, want := next(t, idle), "ADDED a/x@100000"; got != want {
		t.Errorf("cursor that had nothing to read: got %s, want %s", got, want)
	}
}

// TestLogOfManyObjectsHoldsAsManyChanges has a burst over a fourth of many objects, which who was away
// meanwhile can still read, and the log be small again when they have gone.
func TestLogOfManyObjectsHoldsAsManyChanges(t *testing.T) {
	names := make([]string, logShare*(logSize+1000))
	for i := range names {
		names[i] = fmt.Sprintf("a/x%d", i)
	}
	c := filled(names...)
	f := c.Follow(FollowOptions{})
	defer f.Close()
	f.Next()
	burst := int64(len(names) / logShare)
	for i := range burst {
		feed(c, 11+i, names[i])
	}
	if got := next(t, cursor(t, c, CursorOptions{After: 10})); strings.Count(got, "MODIFIED") != int(burst) {
		t.Errorf("after a burst: got %d events, want %d", strings.Count(got, "MODIFIED"), burst)
	}
	feed(c, 11+burst, names[0])
	if _, err := c.Cursor(CursorOptions{After: 10}); !errors.Is(err, ErrTooOld) {
		t.Errorf("from before it, after one change more: got %v, want ErrTooOld", err)
	}
	rev := 12 + burst
	for _, name := range names[1:] {
		feed(c, rev, "-"+name)
		rev++
	}
	if got := next(t, cursor(t, c, CursorOptions{After: rev - 1 - logSize})); strings.Count(got, "DELETED") != logSize {
		t.Errorf("of few objects: got %d events, want %d", strings.Count(got, "DELETED"), logSize)
	}
	if _, err := c.Cursor(CursorOptions{After: rev - 2 - logSize}); !errors.Is(err, ErrTooOld) {
		t.Errorf("from one before: got %v, want ErrTooOld", err)
	}
	if got := len(f.Next()); got != len(names) {
		t.Errorf("follower that read nothing meanwhile: got %d objects, want %d", got, len(names))
	}
}

func TestTrimForgetsOldChanges(t *testing.T) {
	c := filled("a/x")
	slow := cursor(t, c, CursorOptions{After: 10})
	feed(c, 11, "a/y")
	c.Trim()
	feed(c, 12, "a/z")
	if got := next(t, cursor(t, c, CursorOptions{After: 10})); got != "ADDED a/y@11, ADDED a/z@12" {
		t.Errorf("after one trim: got %s", got)
	}
	c.Trim()
	if _, err := c.Cursor(CursorOptions{After: 10}); !errors.Is(err, ErrTooOld) {
		t.Errorf("start at 10 after two trims: got %v, want ErrTooOld", err)
	}
	if _, err := slow.Next(); !errors.Is(err, ErrTooOld) {
		t.Errorf("slow cursor: got %v, want ErrTooOld", err)
	}
	if got := next(t, cursor(t, c, CursorOptions{After: 11})); got != "ADDED a/z@12" {
		t.Errorf("start at 11: got %s", got)
	}
	c.Trim()
	c.Trim()
	cu := cursor(t, c, CursorOptions{After: 12})
	feed(c, 13, "a/q")
	if got := next(t, cu); got != "ADDED a/q@13" {
		t.Errorf("log after it was emptied: got %s", got)
	}
}

func TestReplaceShowsCursorsTheDifference(t *testing.T) {
	c := filled("a/kept", "a/gone", "a/changed", "a/again")
	cu := cursor(t, c, CursorOptions{After: 10})
	again := thing(22, "a/again")
	again.Object.SetUID("another")
	state := append(items(10, "a/kept"), thing(24, "a/changed"), again, thing(21, "a/new"))
	c.Replace(state, 30)
	c.Progress.Advance(30)
	want := "ADDED a/new@21, DELETED a/again@22, ADDED a/again@22, MODIFIED a/changed@24, DELETED a/gone@30"
	if got := next(t, cu); got != want || cu.Rev() != 30 {
		t.Errorf("got %s up to %d, want %s", got, cu.Rev(), want)
	}
	if _, err := c.Cursor(CursorOptions{After: 29}); !errors.Is(err, ErrTooOld) {
		t.Errorf("start before the new list: got %v, want ErrTooOld", err)
	}
	if got := next(t, cursor(t, c, CursorOptions{After: 30})); got != "" {
		t.Errorf("start at the new list: got %s", got)
	}
	if got := keys(c.List("", nil)); got != "a/again a/changed a/kept a/new" {
		t.Errorf("state: got %s", got)
	}
}

// TestTrimDoesNotOpenWhatANewListHasClosed: the changes before a new list are not
// known in full, also when the log begins among them.
func TestTrimDoesNotOpenWhatANewListHasClosed(t *testing.T) {
	c := filled("a/x")
	c.Replace(items(21, "a/x"), 30)
	c.Progress.Advance(30)
	c.Trim()
	feed(c, 31, "a/x")
	c.Trim()
	if _, err := c.Cursor(CursorOptions{After: 25}); !errors.Is(err, ErrTooOld) {
		t.Errorf("start before the new list: got %v, want ErrTooOld", err)
	}
	if got := next(t, cursor(t, c, CursorOptions{After: 30})); got != "MODIFIED a/x@31" {
		t.Errorf("start at the new list: got %s", got)
	}
}

func TestEachDeliversStateThenChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(things.Def, &Progress{})
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		ended := make(chan error, 1)
		go func() {
			ended <- c.Each(ctx, FollowOptions{}, func(deltas []Delta) error {
				got = append(got, describeDeltas(deltas))
				return nil
			})
		}()
		synctest.Wait()
		if len(got) != 0 {
			t.Errorf("before the cache is synced: got %q", got)
		}
		c.Replace(nil, 10)
		synctest.Wait()
		feed(c, 11, "a/x")
		synctest.Wait()
		c.Progress.Advance(15)
		synctest.Wait()
		feed(c, 16, "-a/x")
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Each: got %v, want the context's end", err)
		}
		if want := []string{"", "a/x 0-11", "a/x 11-0"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func TestWaitRevWaitsForTheRevision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := filled()
		if err := c.WaitRev(t.Context(), 10); err != nil {
			t.Errorf("revision that is there: %v", err)
		}
		done := make(chan int64, 3)
		for _, rev := range []int64{12, 11, 14} {
			go func() {
				if err := c.WaitRev(t.Context(), rev); err == nil {
					if c.Rev() < rev {
						t.Errorf("WaitRev(%d) returned at %d", rev, c.Rev())
					}
					done <- rev
				}
			}()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.WaitRev(ctx, 99); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("revision that does not come: got %v", err)
		}
		if len(done) != 0 {
			t.Errorf("too early: %d", <-done)
		}
		c.Progress.Advance(12)
		c.Progress.Advance(5)
		synctest.Wait()
		if len(done) != 2 || <-done+<-done != 11+12 || c.Rev() != 12 {
			t.Errorf("at 12: the waiters for 11 and 12 have not, or not alone, returned")
		}
		c.Progress.Advance(14)
		if rev := <-done; rev != 14 {
			t.Errorf("at 14: got %d", rev)
		}
	})
}

func TestNotesAreMadeOnce(t *testing.T) {
	it := thing(1, "a/x")
	made := 0
	first := func() any { made++; return made }
	for key, want := range map[string]int{"json": 1} {
		for range 3 {
			if got := it.Note(key, first); got != want {
				t.Errorf("%s: got %v, want %d", key, got, want)
			}
		}
	}
	if got := it.Note("protobuf", first); got != 2 {
		t.Errorf("another key: got %v, want 2", got)
	}
}

func TestAtRevisionLeavesTheObjectAlone(t *testing.T) {
	for _, obj := range []resource.Object{
		thing(1, "a/x").Object,
		&unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x", "resourceVersion": "1"}}},
	} {
		got := AtRevision(obj, 7)
		if got.GetResourceVersion() != "7" || obj.GetResourceVersion() != "1" || got.GetName() != "x" {
			t.Errorf("%T: got %s and %s, want 7 and 1", obj, got.GetResourceVersion(), obj.GetResourceVersion())
		}
	}
}

func TestNarrowTellsWhatTheFollowerSees(t *testing.T) {
	in, out := thing(1, "a/x blue"), thing(1, "a/x red")
	has := func(it *Item) bool { return it == in }
	for _, c := range []struct {
		event Event
		want  EventType // empty: nothing
	}{
		{Event{Type: Added, Item: in}, Added},
		{Event{Type: Added, Item: out}, ""},
		{Event{Type: Modified, Item: in, Prev: in}, Modified},
		{Event{Type: Modified, Item: in, Prev: out}, Added},
		{Event{Type: Modified, Item: out, Prev: in}, Deleted},
		{Event{Type: Modified, Item: out, Prev: out}, ""},
		{Event{Type: Deleted, Item: in, Prev: in}, Deleted},
		{Event{Type: Deleted, Item: out, Prev: out}, ""},
	} {
		got, ok := Narrow(c.event, has)
		if ok != (c.want != "") || ok && got.Type != c.want {
			t.Errorf("%s, matched before %t, now %t: got %s, %t; want %q", c.event.Type, has(c.event.Prev), has(c.event.Item), got.Type, ok, c.want)
		}
	}
}

// TestHowManyFollowIsKeptWithAState that is kept itself: who lists in pages reads the same
// again, whether anything has changed since or not.
func TestHowManyFollowIsKeptWithAState(t *testing.T) {
	c := filled("a/1", "a/2", "a/3")
	now := c.Snapshot()
	now.NoteAfter("a/1", 2)
	if n, ok := now.After("a/1"); ok {
		t.Errorf("of a snapshot that nobody else reads %d was kept", n)
	}
	for _, changed := range []bool{false, true} {
		if changed {
			feed(c, 11, "-a/3")
		}
		s := c.SnapshotAt(10)
		if _, ok := s.After("a/2"); ok != changed {
			t.Errorf("changed is %t: what follows a/2 is known: got %t", changed, ok)
		}
		s.NoteAfter("a/2", 1)
		if n, ok := c.SnapshotAt(10).After("a/2"); n != 1 || !ok {
			t.Errorf("changed is %t: got %d, %t, want 1", changed, n, ok)
		}
	}
	if n, ok := c.SnapshotAt(11).After("a/2"); ok {
		t.Errorf("of another state: got %d, want nothing", n)
	}
}
