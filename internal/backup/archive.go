package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/kemudi/kemudi/internal/wholefile"
)

// What a backup has.
const (
	StoreName = "snapshot.db" // a snapshot of the store, as an etcd's
	KeysName  = "pki"         // the directory of keys and certificates
)

// A Store is the store of a cluster as it was at one moment, in bytes.
type Store interface {
	Size() int64
	io.WriterTo // once
}

// Write writes a backup of a store and of the keys in a directory to a file, which is there when all of it is on the disk, and
// whole; one of that name is there until then. When ctx ends so does it.
func Write(ctx context.Context, file string, store Store, keys string) error {
	return wholefile.Fill(file, func(w io.Writer) error {
		z := gzip.NewWriter(until{ctx, w})
		a := tar.NewWriter(z)
		if err := addStore(a, store); err != nil {
			return err
		}
		if err := addKeys(a, keys); err != nil {
			return err
		}
		return errors.Join(a.Close(), z.Close())
	})
}

// until writes until ctx ends.
type until struct {
	ctx context.Context
	io.Writer
}

func (u until) Write(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.Writer.Write(p)
}

func addStore(a *tar.Writer, store Store) error {
	size := store.Size()
	if err := a.WriteHeader(&tar.Header{Name: StoreName, Mode: 0o600, Size: size, ModTime: time.Now()}); err != nil {
		return err
	}
	n, err := store.WriteTo(a)
	if err == nil && n < size {
		err = fmt.Errorf("the store ended after %d of %d bytes", n, size)
	}
	return err
}

// addKeys adds the files of a directory.
func addKeys(a *tar.Writer, dir string) error {
	return filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(filepath.Join(KeysName, name)), Mode: int64(info.Mode().Perm()), Size: int64(len(data)), ModTime: info.ModTime()}
		if err := a.WriteHeader(h); err != nil {
			return err
		}
		_, err = a.Write(data)
		return err
	})
}
