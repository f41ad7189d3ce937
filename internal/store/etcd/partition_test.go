package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
)

// tryWrite writes a key and says what came of it.
func tryWrite(ctx context.Context, s store.Store, key, value string) error {
	_, err := s.Txn(ctx, store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value)}}})
	return err
}

func TestAMinorityRefusesWritesAndCatchesUpAfterwards(t *testing.T) {
	t.Parallel()
	tr := newTrioOver(t, newLinks(t), 3)
	old := tr.leader()
	minority, majority := tr.servers[old], tr.servers[(old+1)%3]
	write(t, minority, "/a", "before")

	feed := make(chan string, 1000)
	go func() {
		_ = minority.Watch(t.Context(), "/a", 1, func(changes []store.Change, _ int64) error {
			for _, c := range changes {
				feed <- string(c.Value)
			}
			return nil
		})
	}()
	tr.links.isolate(minority.o.Name)

	// What was sent before it knew that nobody hears it may be made or not, in truth it is not.
	err := tryWrite(within(t), minority, "/lost", "x")
	for errors.Is(err, store.ErrUnknown) {
		err = tryWrite(within(t), minority, "/lost", "x")
	}
	if !errors.Is(err, store.ErrNoMajority) {
		t.Errorf("write to a minority: got %v, want ErrNoMajority", err)
	}
	if _, _, err := minority.Get(within(t), "/a"); !errors.Is(err, store.ErrNoMajority) {
		t.Errorf("read from a minority: got %v, want ErrNoMajority", err)
	}
	if _, err := minority.Rev(within(t)); !errors.Is(err, store.ErrNoMajority) {
		t.Errorf("revision of a minority: got %v, want ErrNoMajority", err)
	}
	if c, err := minority.Members(within(t)); err != nil || len(c.Members) != 3 {
		t.Errorf("members that a minority knows: got %v, %v; want 3", c, err)
	}
	// Whoever has waited in vain for a leader keeps nobody else waiting.
	start := time.Now()
	for range 1000 {
		_ = tryWrite(within(t), minority, "/lost", "x")
	}
	if took := time.Since(start); took > 10*electionPatience {
		t.Errorf("1,000 refusals took %s", took)
	}
	eventually(t, "a write to the majority", func() bool { return tryWrite(within(t), majority, "/a", "during") == nil })

	tr.links.heal()
	eventually(t, "a write to the member that was cut off", func() bool { return tryWrite(within(t), minority, "/a", "after") == nil })
	for i, s := range tr.servers {
		if kv, _, err := s.Get(within(t), "/a"); err != nil || string(kv.Value) != "after" {
			t.Errorf("%d: got %q, %v; want what was written last", i, kv.Value, err)
		}
		if kv, _, err := s.Get(within(t), "/lost"); err != nil || kv.Rev != 0 {
			t.Errorf("%d: what was refused: got %q, %v; want nothing", i, kv.Value, err)
		}
	}
	var seen []string
	for len(seen) == 0 || seen[len(seen)-1] != "after" {
		select {
		case v := <-feed:
			seen = append(seen, v)
		case <-within(t).Done():
			t.Fatalf("feed of the member that was cut off: got %q, want all up to the last", seen)
		}
	}
	if fmt.Sprint(slices.Compact(seen)) != "[before during after]" { // what was unknown may have been written twice
		t.Errorf("feed of the member that was cut off: got %q", seen)
	}
}

// TestWhoFellFarBehindGetsTheWholeDatabase: its feeds go on, or learn that they missed something.
func TestWhoFellFarBehindGetsTheWholeDatabase(t *testing.T) {
	t.Parallel()
	tr := newTrioOver(t, newLinks(t), 3)
	behind := tr.servers[(tr.leader()+1)%3]
	other := tr.servers[tr.leader()]
	write(t, other, "/a", "0")
	last := make(chan string, 1)
	go func() {
		_ = behind.Watch(t.Context(), "/a", 1, func(changes []store.Change, _ int64) error {
			for _, c := range changes {
				select {
				case <-last:
				default:
				}
				last <- string(c.Value)
			}
			return nil
		})
	}()
	tr.links.isolate(behind.o.Name)
	n := snapshotCount + 2*severalCatchUpEntries // none of it is left in the log of the others
	for i := range n {
		write(t, other, "/a", fmt.Sprint(i))
	}
	tr.links.heal()
	eventually(t, "the last write, read from who fell behind", func() bool {
		kv, _, err := behind.Get(within(t), "/a")
		return err == nil && string(kv.Value) == fmt.Sprint(n-1)
	})
	eventually(t, "the last write in the feed of who fell behind", func() bool {
		select {
		case v := <-last:
			return v == fmt.Sprint(n-1)
		default:
			return false
		}
	})
	if err := behind.WhileMapped(func(string) error { return errors.New("it is") }); err != nil {
		t.Error("one of several promises that its database stays mapped")
	}
	write(t, behind, "/b", "x")
}
