package etcd

import (
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.uber.org/zap"
)

// firstLog is the log's first segment.
const firstLog = "0000000000000000-0000000000000000.wal"

// clearStillborn removes what a first start left that was cut off after it had
// made its log and before it wrote down who is a member. etcd takes such a log for
// that of a member which others will tell of the cluster, and waits for ever.
// Nothing was ever committed there, and nobody was voted for.
func (o Options) clearStillborn() error {
	if _, err := os.Stat(o.joinedMark()); err == nil {
		return nil // the others will tell of the cluster
	}
	member := o.member()
	logs, err := filepath.Glob(filepath.Join(member, "wal", "*.wal"))
	if err != nil || len(logs) != 1 || filepath.Base(logs[0]) != firstLog {
		return nil
	}
	snapshots, err := filepath.Glob(filepath.Join(member, "snap", "*.snap"))
	if err != nil || len(snapshots) > 0 {
		return nil
	}
	w, err := wal.OpenForRead(zap.NewNop(), filepath.Join(member, "wal"), &walpb.Snapshot{})
	if err != nil {
		return nil // etcd's own start says what is wrong with it
	}
	defer w.Close() // what was opened for reading always answers with an error
	_, state, _, err := w.ReadAll()
	if err != nil || state.GetCommit() > 0 || state.GetVote() > 0 {
		return nil
	}
	o.Log.Info("the first start was cut off before anything was stored, starting anew", "dir", member)
	if err := os.RemoveAll(member); err != nil {
		return fmt.Errorf("remove an empty store: %w", err)
	}
	return nil
}
