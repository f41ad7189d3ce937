package takeover

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/kemudi/kemudi/internal/store/etcd"
	"github.com/kemudi/kemudi/internal/task"
)

// copyDirectory copies the data of an etcd and returns the database, complete: writes that
// are in the log alone, as after a crash, are put into it.
func (o *Options) copyDirectory(ctx context.Context) (db string, _ error) {
	from, err := o.member()
	if err != nil {
		return "", err
	}
	// Laid out as our own store is, so that it can be started.
	dir := filepath.Join(o.Scratch, "copy")
	member := filepath.Join(dir, "etcd", "member")
	if err := copyMember(from, member); err != nil {
		return "", err
	}
	db = filepath.Join(member, "snap", "db")
	late, members, err := late(member)
	if err != nil {
		return "", fmt.Errorf("%s is damaged, or of an etcd that is not known: %w", o.Path, err)
	}
	if late == 0 {
		return db, nil
	}
	o.Log.Info("the store did not end in order: writes that are in its log alone are made up for", "writes", late)
	if err := replay(ctx, dir, o); err != nil {
		return "", fmt.Errorf("%s did not end in order: %d of its writes are in its log alone, and they could not be made up for (%w); it is of a cluster of %d members. "+
			"Start its etcd once more and stop it, so that it ends in order, or have it make a snapshot (etcdctl snapshot save)", o.Path, late, err, members)
	}
	return db, nil
}

// member is the directory with database and log below the path, which may be what etcd
// calls its data directory, one of ours, or that directory itself.
func (o *Options) member() (string, error) {
	for _, below := range []string{"member", "etcd/member", "."} {
		dir := filepath.Join(o.Path, below)
		there, err := exists(filepath.Join(dir, "snap", "db"))
		if err != nil {
			return "", fmt.Errorf("look for a store: %w", err)
		}
		if there {
			return dir, nil
		}
	}
	return "", fmt.Errorf("%s is not the data directory of an etcd: there is no member/snap/db in it", o.Path)
}

// copyMember copies database and log, while nobody can use them.
func copyMember(from, to string) error {
	f, err := os.Open(filepath.Join(from, "snap", "db"))
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer f.Close()
	if err := lockUnused(f); err != nil {
		return err
	}
	if err := copyTo(f, filepath.Join(to, "snap", "db")); err != nil {
		return err
	}
	for _, pattern := range []string{"snap/*.snap", "wal/*.wal"} {
		files, err := filepath.Glob(filepath.Join(from, pattern))
		if err != nil {
			return fmt.Errorf("list the store: %w", err)
		}
		for _, file := range files {
			if err := copyFile(file, filepath.Join(to, filepath.Dir(pattern), filepath.Base(file))); err != nil {
				return err
			}
		}
	}
	return nil
}

// late is how many writes are in the log of a member and not in its database, and how many
// members its cluster has.
func late(member string) (n, members int, err error) {
	defer func() {
		if r := recover(); r != nil { // how the libraries tell of what makes no sense
			err = fmt.Errorf("%v", r)
		}
	}()
	applied := uint64(0)
	b, err := openCopy(filepath.Join(member, "snap", "db"))
	if err != nil {
		return 0, 0, err
	}
	err = view(b, func(tx *bbolt.Tx) error {
		if meta := tx.Bucket([]byte("meta")); meta != nil {
			if v := meta.Get([]byte("consistent_index")); len(v) == 8 {
				applied = binary.BigEndian.Uint64(v)
			}
		}
		if list := tx.Bucket([]byte("members")); list != nil {
			members = list.Stats().KeyN
		}
		return nil
	})
	if err = errors.Join(err, b.Close()); err != nil {
		return 0, 0, err
	}
	dir := filepath.Join(member, "wal")
	points, err := wal.ValidSnapshotEntries(zap.NewNop(), dir)
	if err != nil {
		return 0, 0, fmt.Errorf("read its log: %w", err)
	}
	from := &walpb.Snapshot{}
	if len(points) > 0 {
		from = points[len(points)-1]
	}
	w, err := wal.OpenForRead(zap.NewNop(), dir, from)
	if err != nil {
		return 0, 0, fmt.Errorf("read its log: %w", err)
	}
	defer w.Close() // what was opened for reading always answers with an error
	_, state, entries, err := w.ReadAll()
	if err != nil {
		return 0, 0, fmt.Errorf("read its log: %w", err)
	}
	for _, e := range entries {
		// A member that is alone agrees to all that it has written down.
		agreed := members <= 1 || e.GetIndex() <= state.GetCommit()
		if agreed && e.GetIndex() > applied && writes(e) {
			n++
		}
	}
	return n, members, nil
}

// writes says whether an entry of the log changes keys.
func writes(e *raftpb.Entry) bool {
	var r etcdserverpb.InternalRaftRequest
	if e.GetType() != raftpb.EntryNormal || proto.Unmarshal(e.GetData(), &r) != nil {
		return false
	}
	return r.Put != nil || r.DeleteRange != nil || r.Txn != nil || r.LeaseRevoke != nil
}

// replay starts an etcd on a copy, which puts its log into its database, and stops it.
func replay(ctx context.Context, dir string, o *Options) error {
	_, err := serve(ctx, etcd.Options{Dir: dir, Name: "copy", Log: o.Log}, func(context.Context, *etcd.Server) (int64, error) { return 0, nil })
	return err
}

// serve runs a store of ours for as long as f takes.
func serve(ctx context.Context, o etcd.Options, f func(ctx context.Context, st *etcd.Server) (int64, error)) (n int64, _ error) {
	st, err := etcd.New(o)
	if err != nil {
		return 0, err
	}
	g := task.NewGroup(ctx)
	g.Go("store", st.Run)
	select {
	case <-st.Ready():
		n, err = f(g.Context(), st)
	case <-g.Context().Done():
	}
	g.Cancel(context.Canceled)
	return n, errors.Join(err, g.Wait())
}
