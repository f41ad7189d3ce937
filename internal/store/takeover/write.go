package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/kemudi/kemudi/internal/store"
	"github.com/kemudi/kemudi/internal/store/etcd"
)

// leap is by how much revisions go up: whoever has seen more of the old store than there is of
// it here has not seen a number that is given again. It is what etcd advises for restored
// snapshots, writes of a week at their fastest.
const leap = 1_000_000_000

// batch is how many keys are written at a time.
const batch = 10_000

// Write makes a store of a single member, of the given name, in a directory, which is as
// [etcd.Options] have it and has none. change may give a key another value; the one that
// it returns is nil where it stays.
func (s *Source) Write(ctx context.Context, dir, name string, change func(kv store.KV) ([]byte, error)) error {
	o := etcd.Options{Dir: dir, Name: name, Log: s.o.Log}
	// An empty one first: whose it is, and where its log begins, is for etcd to say.
	if _, err := serve(ctx, o, revisionOf); err != nil {
		return fmt.Errorf("make a new store: %w", err)
	}
	if err := s.fill(ctx, filepath.Join(dir, "etcd", "member", "snap", "db"), change); err != nil {
		return fmt.Errorf("fill the new store: %w", err)
	}
	rev, err := serve(ctx, o, revisionOf)
	if err != nil {
		return fmt.Errorf("start the new store: %w", err)
	}
	if want := s.last + leap; rev != want {
		return fmt.Errorf("the new store is at revision %d, want %d", rev, want)
	}
	return nil
}

func revisionOf(ctx context.Context, st *etcd.Server) (int64, error) { return st.Rev(ctx) }

// fill puts the newest change of each key into the database of an etcd that has ended, as after
// a compaction of all history, and the leases of keys that have an end.
func (s *Source) fill(ctx context.Context, file string, change func(kv store.KV) ([]byte, error)) (err error) {
	to, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: openTimeout, NoSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var pending [][2][]byte
	flush := func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := to.Update(func(tx *bbolt.Tx) error {
			keys, err := tx.CreateBucketIfNotExists([]byte("key"))
			if err != nil {
				return err
			}
			keys.FillPercent = 0.9 // they come in order
			for _, p := range pending {
				if err := keys.Put(p[0], p[1]); err != nil {
					return err
				}
			}
			return nil
		})
		pending = pending[:0]
		return err
	}
	err = s.each(func(at revision, data []byte, kv *mvccpb.KeyValue) error {
		value, err := change(store.KV{Key: string(kv.Key), Value: kv.Value, Rev: kv.ModRevision})
		if err != nil {
			return err
		}
		if value != nil {
			kv.Value = value
			if data, err = proto.Marshal(kv); err != nil {
				return fmt.Errorf("encode %s: %w", kv.Key, err)
			}
		}
		if pending = append(pending, [2][]byte{at[:], bytes.Clone(data)}); len(pending) == batch {
			return flush()
		}
		return nil
	})
	if err == nil {
		err = flush()
	}
	if err == nil {
		err = s.finish(to)
	}
	return err
}

// finish copies the leases, and says that all history is forgotten.
func (s *Source) finish(to *bbolt.DB) error {
	err := view(s.db, func(from *bbolt.Tx) error {
		return to.Update(func(tx *bbolt.Tx) error {
			meta, err := tx.CreateBucketIfNotExists([]byte("meta"))
			if err != nil {
				return err
			}
			now := numbered(s.last + leap)
			for _, name := range []string{"scheduledCompactRev", "finishedCompactRev"} {
				if err := meta.Put([]byte(name), now[:]); err != nil {
					return err
				}
			}
			leases, err := tx.CreateBucketIfNotExists([]byte("lease"))
			if err != nil {
				return err
			}
			if was := from.Bucket([]byte("lease")); was != nil {
				return was.ForEach(leases.Put)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return to.Sync()
}
