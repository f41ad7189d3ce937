package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// known is what a follower was told, by key.
type known map[string]*Item

// take holds deltas against what was told before (K5).
func (s known) take(t *testing.T, who string, deltas []Delta) {
	for _, d := range deltas {
		key := d.Last().Key
		if s[key] != d.Prev {
			t.Errorf("%s: %s, but was told %+v before", who, describeDeltas([]Delta{d}), s[key])
		}
		if d.Prev != nil && d.Now != nil && d.Prev.Object.GetUID() != d.Now.Object.GetUID() {
			t.Errorf("%s: one delta of two objects: %s", who, describeDeltas([]Delta{d}))
		}
		if s[key] = d.Now; d.Now == nil {
			delete(s, key)
		}
	}
}

func (s known) String() string {
	var items []*Item
	for _, it := range s {
		items = append(items, it)
	}
	return stateOf(items)
}

// describeDeltas shows the revisions of before and after; 0 is none.
func describeDeltas(deltas []Delta) string {
	var out []string
	for _, d := range deltas {
		var prev, now int64
		if d.Prev != nil {
			prev = d.Prev.Rev
		}
		if d.Now != nil {
			now = d.Now.Rev
		}
		out = append(out, fmt.Sprintf("%s %d-%d", d.Last().Key, prev, now))
	}
	return strings.Join(out, ", ")
}

// brief is a cache at revision 10 that remembers few changes.
func brief(size int, texts ...string) *Cache {
	c := filled(texts...)
	c.mu.log.size = size
	return c
}

func follower(t *testing.T, c *Cache, o FollowOptions) *Follower {
	t.Helper()
	f := c.Follow(o)
	t.Cleanup(f.Close)
	return f
}

func TestFollowerIsToldTheStateThenEachChange(t *testing.T) {
	c := filled("a/x", "b/x")
	f := follower(t, c, FollowOptions{Namespace: "a"})
	feed(c, 11, "a/y")
	for _, step := range []struct {
		changes []string
		want    string
	}{
		{nil, "a/x 0-10, a/y 0-11"},
		{nil, ""},
		{[]string{"b/y"}, ""},
		{[]string{"a/y", "-a/x"}, "a/y 11-15, a/x 10-0"},
		{[]string{"a/x"}, "a/x 0-16"},
	} {
		feed(c, c.Rev()+1, step.changes...)
		if got := describeDeltas(f.Next()); got != step.want {
			t.Errorf("after %q: got %s, want %s", step.changes, got, step.want)
		}
	}
	f.Close()
	f.Close()
	for len(f.Ready()) > 0 {
		<-f.Ready()
	}
	feed(c, 100, "a/z")
	if len(f.Ready()) > 0 || len(c.mu.followers) > 0 {
		t.Error("a closed follower is still known")
	}
}

func TestFollowerOfACacheThatIsNotSyncedWaitsForIt(t *testing.T) {
	c := New(things.Def, &Progress{})
	f := follower(t, c, FollowOptions{})
	if got := f.Next(); got != nil || len(f.Ready()) > 0 {
		t.Errorf("before the state is known: got %s", describeDeltas(got))
	}
	c.Replace(items(10, "a/x"), 10)
	if got := describeDeltas(f.Next()); got != "a/x 0-10" || len(f.Ready()) == 0 {
		t.Errorf("the first state: got %s", got)
	}
}

func TestFollowerThatIsFarBehindIsToldTheNewestStates(t *testing.T) {
	for _, c := range []struct {
		name    string
		o       FollowOptions
		changes []string
		want    string
	}{
		{"changed often", FollowOptions{}, []string{"a/x", "a/y", "a/x", "a/x"}, "a/y 10-12, a/x 10-14"},
		{"gone", FollowOptions{}, []string{"-a/x", "a/y"}, "a/x 10-0, a/y 10-12"},
		{"came and went", FollowOptions{}, []string{"a/z", "a/z", "-a/z"}, ""},
		{"came, went and came", FollowOptions{}, []string{"a/z", "-a/z", "a/z"}, "a/z 0-13"},
		{"gained the value", FollowOptions{Index: "color", Value: "blue"}, []string{"a/y blue", "a/y blue", "a/x red"}, "a/y 0-12"},
		{"lost the value", FollowOptions{Index: "color", Value: "red"}, []string{"a/x red", "a/x blue", "a/x"}, "a/x 10-0"},
		{"lost the value and gained it", FollowOptions{Index: "color", Value: "red"}, []string{"a/x", "a/x blue", "a/x red"}, "a/x 10-13"},
		{"gained the value and lost it", FollowOptions{Index: "color", Value: "blue"}, []string{"a/x blue", "a/x blue", "a/x"}, ""},
	} {
		for _, size := range []int{1, 2, logSize} {
			cache := brief(size, "a/x red", "a/y")
			f := follower(t, cache, c.o)
			f.Next()
			for _, change := range c.changes {
				feed(cache, cache.Rev()+1, change)
				if size == logSize {
					cache.Trim()
				}
			}
			if got := describeDeltas(f.Next()); got != c.want {
				t.Errorf("%s, log of %d: got %s, want %s", c.name, size, got, c.want)
			}
			if got := f.Next(); got != nil {
				t.Errorf("%s, log of %d: told again: %s", c.name, size, describeDeltas(got))
			}
		}
	}
}

func TestObjectMadeAnewIsTwoDeltas(t *testing.T) {
	c := brief(1, "a/x", "a/y")
	f := follower(t, c, FollowOptions{})
	f.Next()
	feed(c, 11, "-a/x")
	again := thing(12, "a/x")
	again.Object.SetUID("another")
	c.Apply([]Change{{Item: again}})
	feed(c, 13, "a/y")
	if got, want := describeDeltas(f.Next()), "a/x 10-0, a/x 0-12, a/y 10-13"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestWhatAFollowerMissesIsAsMuchAsThereAreObjects(t *testing.T) {
	c := brief(1, "a/x")
	f := follower(t, c, FollowOptions{})
	f.Next()
	for rev := int64(11); rev < 1000; rev += 3 {
		feed(c, rev, fmt.Sprintf("a/%d", rev), "a/x")
		feed(c, rev+1, fmt.Sprintf("-a/%d", rev), "a/x")
		feed(c, rev+2, "a/x")
	}
	if got := len(f.behind); got != 1 {
		t.Errorf("got %d notes for one object that is there", got)
	}
}

// TestFollowersKeepUpWithRandomHistories feeds random changes, with relists and
// trims, to followers of every kind, quick and slow, over logs of every size, and
// holds what they were told to the state (K3, K5).
func TestFollowersKeepUpWithRandomHistories(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, size := range []int{1, 2, 7, 100, logSize} {
		rnd := rand.New(rand.NewPCG(seed, uint64(size)))
		c := brief(size)
		type reader struct {
			name    string
			f       *Follower
			known   known
			want    func() []*Item
			pause   int // reads once in so many changes
			missed  int // reads of what had left the log
			changes int // it was told of
		}
		var readers []*reader
		for _, pause := range []int{1, 4, 50, 1000} {
			for _, r := range []struct {
				name string
				o    FollowOptions
				want func() []*Item
			}{
				{"all", FollowOptions{}, func() []*Item { return c.List("", nil) }},
				{"namespace a", FollowOptions{Namespace: "a"}, func() []*Item { return c.List("a", nil) }},
				{"red", FollowOptions{Index: "color", Value: "red"}, func() []*Item { return c.ByIndex("color", "red") }},
				{"red in a", FollowOptions{Namespace: "a", Index: "color", Value: "red"}, func() []*Item {
					return slices.DeleteFunc(c.ByIndex("color", "red"), func(it *Item) bool { return it.Namespace() != "a" })
				}},
			} {
				name := fmt.Sprintf("%s, log of %d, every %d", r.name, size, pause)
				readers = append(readers, &reader{name: name, f: follower(t, c, r.o), known: known{}, want: r.want, pause: pause})
			}
		}
		read := func(r *reader, rev int64) {
			if len(r.f.behind) > 0 {
				r.missed++
			}
			begun, ready := r.f.begun, len(r.f.Ready()) > 0
			for len(r.f.Ready()) > 0 {
				<-r.f.Ready()
			}
			deltas := r.f.Next()
			if len(deltas) > 0 && !ready {
				t.Errorf("%s at %d: was not woken for %s", r.name, rev, describeDeltas(deltas))
			}
			if begun && !slices.IsSortedFunc(deltas, byRevision) {
				t.Errorf("%s at %d: out of order: %s", r.name, rev, describeDeltas(deltas))
			}
			r.changes += len(deltas)
			r.known.take(t, r.name, deltas)
			if got, want := r.known.String(), stateOf(r.want()); got != want {
				t.Fatalf("%s at %d: got %s, want %s", r.name, rev, got, want)
			}
		}
		for rev := int64(11); rev < 3000; rev++ {
			changeAtRandom(c, rnd, rev)
			for _, r := range readers {
				if rnd.IntN(r.pause) == 0 {
					read(r, rev)
				}
			}
		}
		for _, r := range readers {
			read(r, 3000)
			if r.pause < 1000 && r.changes < 20 || size < 7 && r.pause == 4 && r.missed < 100 {
				t.Errorf("%s: was told of %d changes, and missed some %d times: this proves little", r.name, r.changes, r.missed)
			}
		}
	}
}

func byRevision(a, b Delta) int {
	if a.Now == nil || b.Now == nil {
		return 0
	}
	return int(a.Now.Rev - b.Now.Rev)
}

// changeAtRandom is one batch of changes, or a relist, and now and then a trim.
// What is made again has another UID.
func changeAtRandom(c *Cache, rnd *rand.Rand, rev int64) {
	colors := []string{"", "red", "blue", "red,blue"}
	next := func(key string) *Item {
		it := thing(rev, key+" "+colors[rnd.IntN(4)])
		it.Object.SetUID(types.UID(fmt.Sprint(rev)))
		if old := c.Get(key); old != nil {
			it.Object.SetUID(old.Object.GetUID())
		}
		return it
	}
	if rnd.IntN(100) == 0 {
		var state []*Item
		for _, it := range c.List("", nil) {
			switch rnd.IntN(4) {
			case 0:
				state = append(state, it)
			case 1:
				state = append(state, next(it.Key))
			case 2: // made anew meanwhile
				again := next(it.Key)
				again.Object.SetUID(types.UID(fmt.Sprint(rev)))
				state = append(state, again)
			}
		}
		c.Replace(state, rev)
		c.Progress.Advance(rev)
		return
	}
	var changes []Change
	for _, k := range rnd.Perm(20)[:1+rnd.IntN(3)] {
		key := fmt.Sprintf("%c/%d", 'a'+k%2, k)
		if old := c.Get(key); old != nil && rnd.IntN(3) == 0 {
			changes = append(changes, Gone(old, rev))
		} else {
			changes = append(changes, Change{Item: next(key)})
		}
	}
	c.Apply(changes)
	c.Progress.Advance(rev)
	if rnd.IntN(200) == 0 {
		c.Trim()
	}
}

// TestFollowersKeepUpBesideTheFeed reads while changes come, over a log of one
// event. It is of most use with -race.
func TestFollowersKeepUpBesideTheFeed(t *testing.T) {
	c := brief(1, "a/0", "a/2")
	var wg sync.WaitGroup
	for i, o := range []FollowOptions{{}, {}, {Namespace: "b"}, {Index: "color", Value: "red"}} {
		wg.Go(func() {
			state := known{}
			err := c.Each(t.Context(), o, func(deltas []Delta) error {
				state.take(t, fmt.Sprint("follower ", i), deltas)
				if state["b/last"] != nil {
					return errDone
				}
				return nil
			})
			if err != errDone {
				t.Errorf("Each: %v", err)
			}
			if got, want := len(state), 1; o.Index != "" && got != want || o == (FollowOptions{}) && state.String() != stateOf(c.List("", nil)) {
				t.Errorf("follower %d: got %s", i, state)
			}
		})
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for rev := int64(11); rev < 3000; rev++ {
		changeAtRandom(c, rnd, rev)
	}
	var rest []Change
	for _, it := range c.ByIndex("color", "red") {
		rest = append(rest, Gone(it, 3000))
	}
	c.Apply(append(rest, Change{Item: thing(3000, "b/last red")}))
	wg.Wait()
}
