package cache

import "testing"

// TestWhatIsRecalledIsReplacedByWhatIsHeard tells a follower of a recalled state what has
// become of it.
func TestWhatIsRecalledIsReplacedByWhatIsHeard(t *testing.T) {
	t.Parallel()
	c := New(things.Def, &Progress{})
	f := c.Follow(FollowOptions{})
	defer f.Close()
	heard := func() bool {
		select {
		case <-c.Heard():
			return true
		default:
			return false
		}
	}
	c.Recall(append(items(3, "a/stays", "a/goes"), thing(4, "a/changes red")), 5)
	<-c.Synced()
	if got := f.Next(); len(got) != 3 || heard() {
		t.Errorf("recalled: got %d changes, heard %t, want 3, not heard", len(got), heard())
	}
	c.Replace(append(items(3, "a/stays"), thing(7, "a/changes blue"), thing(8, "a/new")), 9)
	if !heard() {
		t.Error("what was heard does not count as heard")
	}
	got := map[string]Delta{}
	for _, d := range f.Next() {
		got[d.Last().Key] = d
	}
	if len(got) != 3 || got["a/goes"].Now != nil || got["a/changes"].Now.Rev != 7 || got["a/new"].Prev != nil {
		t.Errorf("got %v, want what goes, changes and is new", got)
	}
}
