package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/task"
)

// renewed is a life that its member renews as long as it can.
type renewed struct {
	mu   sync.Mutex
	last time.Time // when it was asked for the last renewal that succeeded
}

func (r *renewed) asked() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// renew has a member keep a key.
func renew(t *testing.T, g *task.Group, s *Server, key string) *renewed {
	t.Helper()
	life, err := s.BeginLife(within(t), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Txn(within(t), store.Txn{Ops: []store.Op{{Key: key, Value: []byte("x"), Life: life}}}); err != nil {
		t.Fatal(err)
	}
	r := &renewed{last: time.Now()}
	g.Go("renew "+key, func(ctx context.Context) error {
		for task.Sleep(ctx, time.Second) == nil {
			asked := time.Now()
			if s.RenewLife(ctx, life) == nil {
				r.mu.Lock()
				r.last = asked
				r.mu.Unlock()
			}
		}
		return nil
	})
	return r
}

// TestLifeOfALeaderThatIsCutOffEnds: nobody hears it any more, and it cannot renew anything itself.
// The lives of the others go on over the election.
func TestLifeOfALeaderThatIsCutOffEnds(t *testing.T) {
	t.Parallel()
	tr := newTrioOver(t, newLinks(t), 3)
	g := task.NewGroup(t.Context())
	defer func() {
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	}()
	var lives []*renewed
	for i, s := range tr.servers {
		lives = append(lives, renew(t, g, s, fmt.Sprint("/life/", i)))
	}
	old := tr.leader()
	other := tr.servers[(old+1)%3]
	isolated := time.Now()
	tr.links.isolate(tr.servers[old].o.Name)
	eventually(t, "the end of the life of who was cut off", func() bool {
		kv, _, err := other.Get(within(t), fmt.Sprint("/life/", old))
		return err == nil && kv.Rev == 0
	})
	t.Logf("gone %s after it was cut off", time.Since(isolated))
	if since := time.Since(lives[old].asked()); since < 5*time.Second {
		t.Errorf("its life has ended %s after its last renewal, want 5 s at least", since)
	}
	for i := range lives {
		kv, _, err := other.Get(within(t), fmt.Sprint("/life/", i))
		if i != old && (err != nil || kv.Rev == 0) {
			t.Errorf("the life of member %d, which was not cut off, has ended: %v", i, err)
		}
	}
}

func TestLifeOfASingleMemberIsBegunAnewWhenThereAreOthers(t *testing.T) {
	t.Parallel()
	s, _ := run(t, Options{Dir: t.TempDir(), Name: "m0", NoSync: true})
	life, err := s.BeginLife(within(t), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.RenewLife(within(t), life); err != nil {
		t.Fatal(err)
	}
	if err := s.SetPeer(within(t), newAuthority(t).peer(t, "m0")); err != nil {
		t.Fatal(err)
	}
	if err := s.RenewLife(within(t), life); !errors.Is(err, store.ErrLifeOver) {
		t.Errorf("got %v: a life with the timers of a single member ends too late", err)
	}
	if life, err = s.BeginLife(within(t), 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := s.RenewLife(within(t), life); err != nil {
		t.Error(err)
	}
}
