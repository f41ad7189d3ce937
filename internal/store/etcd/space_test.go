package etcd

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/kemudi/kemudi/internal/store"
)

// half is about half a megabyte.
var half = strings.Repeat("x", 500<<10)

// writeUntilFull writes keys until the store takes no more, and says how many it has taken.
func writeUntilFull(t *testing.T, s *Server, key func(i int) string) int {
	t.Helper()
	for i := range 1000 {
		switch err := tryWrite(within(t), s, key(i), half); {
		case errors.Is(err, store.ErrDisk):
			if !strings.Contains(err.Error(), "delete what is not needed") {
				t.Errorf("got %v, want it to say what to do", err)
			}
			return i
		case err != nil:
			t.Fatal(err)
		}
	}
	t.Fatal("1,000 writes of half a megabyte were taken")
	return 0
}

func TestAFullDatabaseTakesWritesAgainWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	s, _ := run(t, Options{Dir: t.TempDir(), NoSync: true, Quota: 48 << 20})
	// History alone fills it: that is forgotten by itself.
	if n := writeUntilFull(t, s, func(i int) string { return fmt.Sprintf("/again/%d", i%10) }); n < 20 {
		t.Errorf("took %d writes of half a megabyte, want more of a quota of 48", n)
	}
	eventually(t, "a write after history was forgotten", func() bool { return tryWrite(within(t), s, "/again/0", half) == nil })

	// What is there fills it: somebody has to delete, which can be done.
	n := 0
	eventually(t, "a database that is full of what is there", func() bool {
		for ; n < 1000; n++ {
			if tryWrite(within(t), s, fmt.Sprintf("/kept/%d", n), half) != nil {
				break
			}
		}
		return n > 60 || s.Writable(within(t)) != nil && n > 50
	})
	for i := range n {
		if _, err := s.Txn(within(t), store.Txn{Ops: []store.Op{{Key: fmt.Sprintf("/kept/%d", i)}}}); err != nil {
			t.Fatalf("delete from a full database: %v", err)
		}
	}
	eventually(t, "a write after a deletion", func() bool { return tryWrite(within(t), s, "/kept/0", half) == nil })
	if err := s.Writable(within(t)); err != nil {
		t.Errorf("a database with room: got %v, want it to be writable", err)
	}
}

// raiseAlarm has etcd refuse writes as if the quota had been reached.
func raiseAlarm(t *testing.T, s *Server) {
	t.Helper()
	m, leave, err := s.here(within(t))
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	_, err = m.srv.Alarm(within(t), &etcdserverpb.AlarmRequest{
		Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: uint64(m.srv.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE,
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheAlarmAboutTheQuotaEndsWhenThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	s, stop := run(t, Options{Dir: dir, NoSync: true})
	raiseAlarm(t, s)
	if err := tryWrite(within(t), s, "/a", "x"); !errors.Is(err, store.ErrDisk) {
		t.Errorf("write during the alarm: got %v, want ErrDisk", err)
	}
	eventually(t, "a write after the alarm", func() bool { return tryWrite(within(t), s, "/a", "x") == nil })
	raiseAlarm(t, s)
	stop()
	s, _ = run(t, Options{Dir: dir, NoSync: true})
	eventually(t, "a write after a start with the alarm", func() bool { return tryWrite(within(t), s, "/a", "y") == nil })
}

func TestADatabaseThatIsMostlyFreeIsWrittenAnew(t *testing.T) {
	for name, several := range map[string]int{"one member": 1, "two members": 2} {
		t.Run(name, func(t *testing.T) {
			var s *Server
			if several == 1 {
				s, _ = run(t, Options{Dir: t.TempDir(), NoSync: true})
			} else {
				s = newTrio(t, several).servers[0]
			}
			for i := range 60 {
				write(t, s, fmt.Sprintf("/%d", i), half)
			}
			write(t, s, "/stays", "x")
			rev := int64(0)
			for i := range 60 {
				r, err := s.Txn(within(t), store.Txn{Ops: []store.Op{{Key: fmt.Sprintf("/%d", i)}}})
				if err != nil {
					t.Fatal(err)
				}
				rev = r.Rev
			}
			m, leave, err := s.here(within(t))
			if err != nil {
				t.Fatal(err)
			}
			leave()
			if _, err := m.client.Compact(within(t), rev); err != nil {
				t.Fatal(err)
			}
			before := m.srv.Backend().Size()
			if err := s.defragment(within(t), m, worthwhile{least: 1 << 40}); err != nil || m.srv.Backend().Size() != before {
				t.Errorf("what does not pay: got %d of %d bytes, %v", m.srv.Backend().Size(), before, err)
			}
			eventually(t, "a smaller database", func() bool {
				m.srv.Backend().ForceCommit()
				if err := s.defragment(within(t), m, worthwhile{least: 16 << 20, share: 50}); err != nil {
					t.Fatal(err)
				}
				return m.srv.Backend().Size() < before/4
			})
			if kv, _, err := s.Get(within(t), "/stays"); err != nil || string(kv.Value) != "x" {
				t.Errorf("afterwards: got %q, %v", kv.Value, err)
			}
			if err := s.WhileMapped(func(string) error { return errors.New("mapped") }); (err == nil) != (several > 1) {
				t.Errorf("afterwards: mapped: %v", err)
			}
			eventually(t, "the end of its turn", func() bool {
				kv, _, err := s.Get(within(t), turnKey)
				return err == nil && kv.Rev == 0
			})
		})
	}
}
