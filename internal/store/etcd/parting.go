package etcd

import (
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// settleParting lets the removal of the other of two voters count, if this one was stopped
// when that stood in its log and before it had heard that it was agreed upon. Who was
// removed may have heard so, and have gone: nobody would be left to agree with.
//
// Of two voters neither decides anything, or leads, unless the other has it on its disk. So
// nothing else than what stands here can have been decided, nor can be any more.
func (o Options) settleParting(k known) error {
	if k.voters != 2 {
		return nil
	}
	// Of a log that cannot be read etcd's own start says what is wrong.
	dir := filepath.Join(o.member(), "wal")
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil || len(snapshots) == 0 {
		return nil
	}
	from := snapshots[len(snapshots)-1]
	r, err := wal.OpenForRead(zap.NewNop(), dir, from)
	if err != nil {
		return nil
	}
	defer r.Close() // what was opened for reading always answers with an error
	metadata, state, entries, err := r.ReadAll()
	var self etcdserverpb.Metadata
	if err != nil || proto.Unmarshal(metadata, &self) != nil {
		return nil
	}
	at, ok := parting(from.GetConfState().GetVoters(), entries, max(state.GetCommit(), k.applied), self.GetNodeID())
	if !ok {
		return nil
	}
	w, err := wal.Open(zap.NewNop(), dir, from)
	if err != nil {
		return o.explain(err)
	}
	if _, _, _, err = w.ReadAll(); err == nil { // it writes behind what it has read
		state.Commit = &at
		err = w.Save(state, nil)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("note in %s that the other member was removed: %w", dir, err)
	}
	o.Log.Info("the removal of the other member of the store was not known to be agreed upon when this one stopped; it counts, and this one goes on alone")
	return nil
}

// parting is the entry, the first change of the members that is not known to be agreed upon,
// that leaves a voter alone of two.
func parting(voters []uint64, entries []*raftpb.Entry, committed, self uint64) (index uint64, ok bool) {
	votes := map[uint64]bool{}
	for _, id := range voters {
		votes[id] = true
	}
	for _, e := range entries {
		var c raftpb.ConfChange
		if e.GetType() != raftpb.EntryConfChange || proto.Unmarshal(e.GetData(), &c) != nil {
			continue
		}
		id, removed := c.GetNodeId(), c.GetType() == raftpb.ConfChangeRemoveNode
		if e.GetIndex() > committed {
			return e.GetIndex(), removed && len(votes) == 2 && votes[self] && votes[id] && id != self
		}
		switch {
		case removed:
			delete(votes, id)
		case c.GetType() == raftpb.ConfChangeAddNode:
			votes[id] = true
		}
	}
	return 0, false
}
