package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// replayed is a state kept up by following events.
type replayed map[string]int64

func (r replayed) take(t *testing.T, who string, events []Event) {
	for _, e := range events {
		_, had := r[e.Item.Key]
		if had == (e.Type == Added) {
			t.Errorf("%s: %s of %s at %d, which it has: %t", who, e.Type, e.Item.Key, e.Rev(), had)
		}
		if e.Type == Deleted {
			delete(r, e.Item.Key)
		} else {
			r[e.Item.Key] = e.Item.Rev
		}
	}
}

func (r replayed) String() string {
	var out []string
	for k, v := range r {
		out = append(out, fmt.Sprintf("%s@%d", k, v))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func stateOf(items []*Item) string {
	r := replayed{}
	for _, it := range items {
		r[it.Key] = it.Rev
	}
	return r.String()
}

// TestCursorsReplayRandomHistories feeds random changes, with relists, and
// holds cursors that read now and then to the state (K2, K3).
func TestCursorsReplayRandomHistories(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	colors := []string{"", "red", "blue", "red,blue"}
	c := filled()
	type follower struct {
		name   string
		cu     *Cursor
		state  replayed
		want   func() []*Item
		events int
	}
	var followers []*follower
	add := func(name string, o CursorOptions, want func() []*Item) {
		followers = append(followers, &follower{name: name, cu: cursor(t, c, o), state: replayed{}, want: want})
	}
	add("all", CursorOptions{FromNow: true}, func() []*Item { return c.List("", nil) })
	add("namespace a", CursorOptions{FromNow: true, Namespace: "a"}, func() []*Item { return c.List("a", nil) })
	add("red", CursorOptions{FromNow: true, Index: "color", Value: "red"}, func() []*Item { return c.ByIndex("color", "red") })
	add("from 10", CursorOptions{After: 10}, func() []*Item { return c.List("", nil) })
	for rev := int64(11); rev < 3000; rev++ {
		switch rnd.IntN(100) {
		case 0: // the feed lists again
			var state []*Item
			for _, it := range c.List("", nil) {
				switch rnd.IntN(3) {
				case 0:
					state = append(state, it)
				case 1:
					state = append(state, thing(rev, it.Key+" "+colors[rnd.IntN(4)]))
				}
			}
			c.Replace(state, rev)
			c.Progress.Advance(rev)
		default:
			var texts []string
			for _, k := range rnd.Perm(20)[:1+rnd.IntN(3)] {
				text := fmt.Sprintf("%c/%d", 'a'+k%2, k)
				if rnd.IntN(3) == 0 {
					text = "-" + text
				} else {
					text += " " + colors[rnd.IntN(4)]
				}
				texts = append(texts, text)
			}
			feed(c, rev, texts...)
		}
		for _, f := range followers {
			if rnd.IntN(4) != 0 {
				continue
			}
			events, err := f.cu.Next()
			if err != nil {
				t.Fatalf("%s at %d: %v", f.name, rev, err)
			}
			if !slices.IsSortedFunc(events, func(a, b Event) int { return int(a.Rev() - b.Rev()) }) {
				t.Errorf("%s at %d: events out of order: %s", f.name, rev, describe(events))
			}
			f.events += len(events)
			f.state.take(t, f.name, events)
			if got, want := f.state.String(), stateOf(f.want()); got != want {
				t.Fatalf("%s at %d: got %s, want %s", f.name, rev, got, want)
			}
		}
	}
	for _, f := range followers {
		if f.events < 500 {
			t.Errorf("%s was told of %d events, want at least 500", f.name, f.events)
		}
	}
}

// TestPastStatesAreAsTheyWere feeds random changes, with relists and trims, notes
// each state, and asks for some of those before: each is as it was, or not known.
func TestPastStatesAreAsTheyWere(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	c := filled("a/0", "a/1", "b/2")
	states := map[int64]string{10: stateOf(c.List("", nil))}
	found, oldest := 0, int64(10)
	for rev := int64(11); rev < 3000; rev++ {
		switch rnd.IntN(200) {
		case 0:
			c.Replace(append(c.List("a", nil), thing(rev, "b/9")), rev)
			c.Progress.Advance(rev)
			oldest = rev
		case 1:
			c.Trim()
		case 2:
			c.Progress.Advance(rev) // a change of another resource
		default:
			var texts []string
			for _, k := range rnd.Perm(20)[:1+rnd.IntN(3)] {
				texts = append(texts, []string{"", "-"}[rnd.IntN(2)]+fmt.Sprintf("%c/%d", 'a'+k%2, k))
			}
			feed(c, rev, texts...)
		}
		states[rev] = stateOf(c.List("", nil))
		at := rev - rnd.Int64N(100)
		s := c.SnapshotAt(at)
		if s == nil {
			continue
		}
		found++
		var got []*Item
		s.Scan("", "", func(it *Item) bool { got = append(got, it); return true })
		if stateOf(got) != states[at] || s.Rev != at || at < oldest {
			t.Fatalf("at %d, asked at %d: got %s of %d, want %s; the state before %d is unknown", at, rev, stateOf(got), s.Rev, states[at], oldest)
		}
		if n := len(c.mu.log.past); n > pastSize || n > 0 && c.mu.log.past[0].Rev < c.mu.log.first {
			t.Fatalf("at %d: %d states are kept, the oldest of %d; the log begins at %d", rev, n, c.mu.log.past[0].Rev, c.mu.log.first)
		}
	}
	if found < 1000 {
		t.Errorf("%d states were found, want at least 1,000", found)
	}
	if c.SnapshotAt(c.Rev()+1) != nil {
		t.Error("a state that is to come was found")
	}
}

// TestReadersNeverSeeHalfABatch runs readers beside the feed: each batch sets
// all objects to one revision (K1). It is of most use with -race.
func TestReadersNeverSeeHalfABatch(t *testing.T) {
	const last = 300
	texts := []string{"a/1 red", "a/2 red", "b/3 blue", "b/4 red,blue"}
	c := filled(texts...)
	var wg sync.WaitGroup
	whole := func(who string, items []*Item, n int) {
		for _, it := range items {
			if it.Rev != items[0].Rev {
				t.Errorf("%s: revisions %d and %d in one view", who, items[0].Rev, it.Rev)
			}
		}
		if len(items) != n {
			t.Errorf("%s: got %d objects, want %d", who, len(items), n)
		}
	}
	for range 2 {
		wg.Go(func() {
			for c.Rev() < last {
				whole("list", c.List("", nil), 4)
				whole("index", c.ByIndex("color", "red"), 3)
				if it := c.Get("a/1"); it == nil {
					t.Error("a/1 is not there")
				}
			}
		})
		wg.Go(func() {
			for c.Rev() < last {
				rev := max(c.Rev()-5, 10)
				var past []*Item
				c.SnapshotAt(rev).Scan("", "", func(it *Item) bool { past = append(past, it); return true })
				whole("past", past, 4)
				if past[0].Rev != rev {
					t.Errorf("the state at %d is of %d", rev, past[0].Rev)
				}
			}
		})
		wg.Go(func() {
			state := known{}
			err := c.Each(t.Context(), FollowOptions{Index: "color", Value: "blue"}, func(deltas []Delta) error {
				state.take(t, "watch", deltas)
				if len(state) != 2 || state["b/3"].Rev != state["b/4"].Rev {
					t.Errorf("watch: saw half a batch: %s", state)
				}
				if state["b/3"].Rev == last {
					return errDone
				}
				return nil
			})
			if err != errDone {
				t.Errorf("Each: %v", err)
			}
		})
		wg.Go(func() {
			for rev := int64(11); rev <= last; rev += 7 {
				if err := c.WaitRev(t.Context(), rev); err != nil || c.Get("a/1").Rev < rev {
					t.Errorf("WaitRev(%d): %v, object at %d", rev, err, c.Get("a/1").Rev)
				}
			}
		})
	}
	for rev := int64(11); rev <= last; rev++ {
		feed(c, rev, texts...)
	}
	wg.Wait()
}

var errDone = fmt.Errorf("done")

func BenchmarkGet(b *testing.B) {
	c := large(10_000)
	b.ReportAllocs()
	for b.Loop() {
		if c.Get("a/5000") == nil {
			b.Fatal("not found")
		}
	}
}

// BenchmarkApply is one change beside 50 readers: of other objects; of this one,
// which they read at once; and which nobody reads.
func BenchmarkApply(b *testing.B) {
	open := func(b *testing.B, c *Cache, o CursorOptions) *Cursor {
		cu, err := c.Cursor(o)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := cu.Next(); err != nil {
			b.Fatal(err)
		}
		return cu
	}
	follow := func(c *Cache, o FollowOptions) *Follower {
		f := c.Follow(o)
		f.Next()
		return f
	}
	b.Run("cursors of others", func(b *testing.B) {
		c := large(10_000)
		for range 50 {
			open(b, c, CursorOptions{FromNow: true, Index: "color", Value: "green"})
		}
		benchmarkApply(b, c, func() {})
	})
	b.Run("followers of others", func(b *testing.B) {
		c := large(10_000)
		for range 50 {
			follow(c, FollowOptions{Index: "color", Value: "green"})
		}
		benchmarkApply(b, c, func() {})
	})
	b.Run("cursors that read", func(b *testing.B) {
		c := large(10_000)
		var all []*Cursor
		for range 50 {
			all = append(all, open(b, c, CursorOptions{FromNow: true}))
		}
		benchmarkApply(b, c, func() {
			for _, cu := range all {
				if events, err := cu.Next(); len(events) != 1 || err != nil {
					b.Fatal(len(events), err)
				}
			}
		})
	})
	b.Run("followers that read", func(b *testing.B) {
		c := large(10_000)
		var all []*Follower
		for range 50 {
			all = append(all, follow(c, FollowOptions{}))
		}
		benchmarkApply(b, c, func() {
			for _, f := range all {
				if deltas := f.Next(); len(deltas) != 1 {
					b.Fatal(len(deltas))
				}
			}
		})
	})
	b.Run("cursors that do not read", func(b *testing.B) {
		c := large(10_000)
		for range 50 {
			open(b, c, CursorOptions{FromNow: true})
		}
		benchmarkApply(b, c, func() {})
	})
	b.Run("followers that do not read", func(b *testing.B) {
		c := large(10_000)
		for range 50 {
			follow(c, FollowOptions{})
		}
		benchmarkApply(b, c, func() {})
	})
}

func benchmarkApply(b *testing.B, c *Cache, read func()) {
	it := thing(11, "a/5000 red")
	b.ReportAllocs()
	for b.Loop() {
		c.Apply([]Change{{Item: it}})
		read()
	}
}

func BenchmarkListNamespaceOf100In10000(b *testing.B) {
	c := large(10_000)
	var changes []Change
	for i := range 100 {
		changes = append(changes, Change{Item: thing(11, fmt.Sprintf("small/%d", i))})
	}
	c.Apply(changes)
	b.ReportAllocs()
	for b.Loop() {
		if len(c.List("small", nil)) != 100 {
			b.Fatal("not all")
		}
	}
}

func large(n int) *Cache {
	var texts []string
	for i := range n {
		texts = append(texts, fmt.Sprintf("a/%d red", i))
	}
	return filled(texts...)
}
