package takeover

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/kemudi/kemudi/internal/store"
)

// Options say what is taken over. All fields are required.
type Options struct {
	Path    string // the data directory of an etcd, or a snapshot
	Scratch string // a directory that is not there yet; who calls removes it
	Log     *slog.Logger
}

// Source is a store that is taken over.
type Source struct {
	o      Options
	db     *bbolt.DB           // the copy
	newest map[string]revision // of each key that is not deleted
	last   int64               // the newest revision of all
}

// A revision is the key of a change in the database: a number, a line, and the number of
// the change within it. Behind that, a deletion has a mark.
type revision [8 + 1 + 8]byte

func (r revision) main() int64 { return int64(binary.BigEndian.Uint64(r[:8])) }

// numbered is the first change of a revision.
func numbered(n int64) (r revision) {
	binary.BigEndian.PutUint64(r[:8], uint64(n))
	r[8] = '_'
	return r
}

// Open copies what is at a path, and looks through the copy. It refuses what a process uses,
// and what is damaged.
func Open(ctx context.Context, o Options) (*Source, error) {
	info, err := os.Stat(o.Path)
	if err != nil {
		return nil, fmt.Errorf("find the store: %w", err)
	}
	if err := os.MkdirAll(o.Scratch, 0o700); err != nil {
		return nil, fmt.Errorf("make room for a copy: %w", err)
	}
	s := &Source{o: o, newest: map[string]revision{}}
	file := ""
	if info.IsDir() {
		file, err = o.copyDirectory(ctx)
	} else {
		file, err = o.copySnapshot()
	}
	if err != nil {
		return nil, err
	}
	if err := s.read(file); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close ends the use of the copy.
func (s *Source) Close() error {
	if s.db == nil {
		return nil
	}
	return s.db.Close()
}

// Keys is how many keys there are.
func (s *Source) Keys() int { return len(s.newest) }

// copySnapshot copies a snapshot, or a database that somebody has copied: behind the pages of
// the first is their sum.
func (o *Options) copySnapshot() (string, error) {
	to := filepath.Join(o.Scratch, "db")
	if err := copyUnused(o.Path, to); err != nil {
		return "", err
	}
	f, err := os.OpenFile(to, os.O_RDWR, 0)
	if err != nil {
		return "", fmt.Errorf("open the copy: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("look at the copy: %w", err)
	}
	pages := info.Size() / 512 * 512
	if info.Size()-pages != sha256.Size {
		return to, nil
	}
	sum, want := sha256.New(), make([]byte, sha256.Size)
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, pages)); err != nil {
		return "", fmt.Errorf("read the copy: %w", err)
	}
	if _, err := f.ReadAt(want, pages); err != nil {
		return "", fmt.Errorf("read the copy: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return "", fmt.Errorf("the snapshot %s is damaged: its sum is not the one that is behind it; make another (etcdctl snapshot save), or take the directory of the etcd", o.Path)
	}
	if err := f.Truncate(pages); err != nil {
		return "", fmt.Errorf("cut the sum off the copy: %w", err)
	}
	return to, nil
}

// copyUnused copies a database, unless a process has it open. None can open it meanwhile.
func copyUnused(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer f.Close()
	if err := lockUnused(f); err != nil {
		return err
	}
	return copyTo(f, to)
}

// lockUnused keeps a database from being opened until it is closed, unless a process has it open.
func lockUnused(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("%s is in use: stop the etcd that has it open, and the API servers with it, or take a snapshot of it (etcdctl snapshot save)", f.Name())
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

func copyFile(from, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer f.Close()
	return copyTo(f, to)
}

func copyTo(f *os.File, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return fmt.Errorf("copy %s: %w", f.Name(), err)
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy %s: %w", f.Name(), err)
	}
	_, err = io.Copy(out, f)
	if err = errors.Join(err, out.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", f.Name(), err)
	}
	return nil
}

// openTimeout is for the lock of a file that nobody else knows.
const openTimeout = time.Second

// view reads a database. The library tells of pages that make no sense by panics.
func view(b *bbolt.DB, f func(tx *bbolt.Tx) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its pages make no sense: %v", r)
		}
	}()
	return b.View(f)
}

// openCopy opens a database that nobody else has open. Of one that was cut off, nothing is read: the
// process would end with it.
func openCopy(file string) (b *bbolt.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("its pages make no sense: %v", r)
		}
	}()
	b, err = bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true, Timeout: openTimeout})
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(file)
	if err == nil {
		err = b.View(func(tx *bbolt.Tx) error {
			if tx.Size() > info.Size() {
				return fmt.Errorf("it has %d bytes and should have %d", info.Size(), tx.Size())
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// read finds the newest change of each key.
func (s *Source) read(file string) (err error) {
	damaged := func(err error) error {
		return fmt.Errorf("%s is not the store of an etcd, or is damaged: %w", s.o.Path, err)
	}
	if s.db, err = openCopy(file); err != nil {
		return damaged(err)
	}
	err = view(s.db, func(tx *bbolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		keys := tx.Bucket([]byte("key"))
		if keys == nil {
			return errors.New("it has no keys")
		}
		if meta := tx.Bucket([]byte("meta")); meta != nil { // what is compacted may be beyond all keys
			for _, name := range []string{"finishedCompactRev", "scheduledCompactRev"} {
				if v := meta.Get([]byte(name)); len(v) >= len(revision{}) {
					s.last = max(s.last, revision(v[:len(revision{})]).main())
				}
			}
		}
		return keys.ForEach(func(at, data []byte) error { // from the oldest on
			if len(at) < len(revision{}) {
				return fmt.Errorf("a change has the number %x", at)
			}
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(data, &kv); err != nil {
				return fmt.Errorf("change %x: %w", at, err)
			}
			rev := revision(at[:len(revision{})])
			s.last = max(s.last, rev.main())
			if len(at) > len(revision{}) {
				delete(s.newest, string(kv.Key))
			} else {
				s.newest[string(kv.Key)] = rev
			}
			return nil
		})
	})
	if err != nil {
		return damaged(err)
	}
	return nil
}

// each calls f with the newest change of each key, as it is stored, the oldest first.
func (s *Source) each(f func(at revision, data []byte, kv *mvccpb.KeyValue) error) error {
	return view(s.db, func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte("key")).ForEach(func(at, data []byte) error {
			if len(at) > len(revision{}) {
				return nil
			}
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(data, &kv); err != nil {
				return fmt.Errorf("change %x: %w", at, err)
			}
			if rev := revision(at); s.newest[string(kv.Key)] == rev {
				return f(rev, data, &kv)
			}
			return nil
		})
	})
}

// Each calls f with each key, in the order of their revisions.
func (s *Source) Each(f func(kv store.KV) error) error {
	return s.each(func(_ revision, _ []byte, kv *mvccpb.KeyValue) error {
		return f(store.KV{Key: string(kv.Key), Value: kv.Value, Rev: kv.ModRevision})
	})
}

// exists says whether there is a file or directory.
func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
