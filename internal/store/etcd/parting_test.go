package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// TestTheOtherOfTwoIsRemovedThoughNobodySaidSo starts a member whose log ends with the removal of
// another one, which nobody is there to agree to.
func TestTheOtherOfTwoIsRemovedThoughNobodySaidSo(t *testing.T) {
	for _, tc := range []struct {
		members int
		alone   bool
	}{
		{2, true},
		{3, false}, // the third may have agreed with the one removed upon something else
	} {
		t.Run(fmt.Sprintf("one of %d", tc.members), func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t, tc.members)
			write(t, tr.servers[0], "/before", "value")
			gone, err := tr.servers[1].Self(within(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, stop := range tr.stops {
				stop()
			}
			noteRemoval(t, tr.options[0], gone)
			o := tr.options[0]
			o.Log = slog.New(slog.DiscardHandler)
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			defer func() {
				cancel()
				<-ended
			}()
			if err := tryWrite(within(t), s, "/after", "value"); (err == nil) != tc.alone {
				t.Errorf("a write afterwards: got %v", err)
			}
			if !tc.alone {
				return
			}
			if kv, _, err := s.Get(within(t), "/before"); err != nil || string(kv.Value) != "value" {
				t.Errorf("what was written before: got %q, %v", kv.Value, err)
			}
			if c, err := s.Members(within(t)); err != nil || len(c.Members) != 1 {
				t.Errorf("got members %+v, %v; want one", c.Members, err)
			}
		})
	}
}

// noteRemoval puts the removal of a member at the end of the log of one that does not run.
func noteRemoval(t *testing.T, o Options, gone uint64) {
	t.Helper()
	dir := filepath.Join(o.member(), "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := wal.Open(zap.NewNop(), dir, snapshots[len(snapshots)-1])
	if err != nil {
		t.Fatal(err)
	}
	_, state, entries, err := w.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(&raftpb.ConfChange{Id: new(uint64(1)), Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: &gone})
	if err != nil {
		t.Fatal(err)
	}
	last := entries[len(entries)-1]
	removal := &raftpb.Entry{Term: new(last.GetTerm()), Index: new(last.GetIndex() + 1), Type: raftpb.EntryConfChange.Enum(), Data: data}
	if err := errors.Join(w.Save(state, []*raftpb.Entry{removal}), w.Close()); err != nil {
		t.Fatal(err)
	}
}
