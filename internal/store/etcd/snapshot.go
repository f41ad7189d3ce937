package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"google.golang.org/protobuf/proto"

	"github.com/kemudi/kemudi/internal/store"
)

// What a database file has after the head of its first page.
const (
	pageHead = 16
	magic    = 0xED0CDAED
)

// IsSnapshot says whether a file is a snapshot of an etcd, or the database of one.
func IsSnapshot(file string) (bool, error) {
	f, err := os.Open(file)
	if err != nil {
		return false, fmt.Errorf("look for a snapshot: %w", err)
	}
	defer f.Close()
	head := make([]byte, pageHead+4)
	if _, err := io.ReadFull(f, head); err != nil {
		return false, nil // it is shorter than any
	}
	return binary.NativeEndian.Uint32(head[pageHead:]) == magic, nil
}

// Snapshot is the database of the member in this process as it was at one moment: a file of the size that it says. It must be
// closed; the member does not end before.
type Snapshot struct {
	backend.Snapshot
	leave func()
}

// Snapshot has all writes that were answered so far.
func (s *Server) Snapshot(ctx context.Context) (*Snapshot, error) {
	if _, err := s.Rev(ctx); err != nil {
		return nil, err
	}
	m, leave, err := s.here(ctx)
	if err != nil {
		return nil, err
	}
	return &Snapshot{m.srv.Backend().Snapshot(), leave}, nil
}

// Close lets the member go on without it.
func (s *Snapshot) Close() error {
	defer s.leave()
	return s.Snapshot.Close()
}

// revisionLength is how long the key of a revision is: two numbers with a line between
// them, and behind that of a deletion a mark.
const revisionLength = 8 + 1 + 8

// ReadSnapshot reads what an etcd had under a prefix at the time of a snapshot, in the
// order of the keys. The file may be the database of an etcd that has ended.
func ReadSnapshot(file, prefix string) (list []store.KV, err error) {
	defer func() {
		if r := recover(); r != nil { // how the library tells of pages that make no sense
			err = fmt.Errorf("read snapshot %s: %v", file, r)
		}
	}()
	b, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", file, err)
	}
	defer b.Close() // of what was only read
	newest := map[string]store.KV{}
	err = b.View(func(tx *bbolt.Tx) error {
		revisions := tx.Bucket([]byte("key"))
		if revisions == nil {
			return errors.New("it is of no etcd")
		}
		return revisions.ForEach(func(revision, data []byte) error { // from the oldest on
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(data, &kv); err != nil {
				return fmt.Errorf("revision %x: %w", revision, err)
			}
			switch {
			case !bytes.HasPrefix(kv.Key, []byte(prefix)):
			case len(revision) > revisionLength:
				delete(newest, string(kv.Key))
			default:
				newest[string(kv.Key)] = fromKV(&kv)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", file, err)
	}
	for _, kv := range newest {
		list = append(list, kv)
	}
	slices.SortFunc(list, func(a, b store.KV) int { return strings.Compare(a.Key, b.Key) })
	return list, nil
}
