package up

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// What a backup has.
const (
	BackupStore = "snapshot.db" // a snapshot of the store, as an etcd's
	BackupKeys  = "pki"         // the directory of keys and certificates
)

// backupMost is how much of an answer that is none is told.
const backupMost = 1 << 10

// Backup writes a backup of the cluster whose server runs on this machine, which goes on meanwhile, to a file: an archive of its
// store and its keys. The file is there when all of it is on the disk, and whole; one of that name is there until then.
// progress is told from time to time how many bytes of the store are left.
func Backup(ctx context.Context, dataDir, file string, progress func(left int64)) error {
	keys := filepath.Join(dataDir, BackupKeys)
	if _, err := os.Stat(keys); err != nil {
		return fmt.Errorf("look for the keys of a server on this machine: %w; name its directory (--data-dir)", err)
	}
	body, size, err := Access{DataDir: dataDir}.snapshot(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	return wholefile.Fill(file, func(w io.Writer) error {
		z := gzip.NewWriter(w)
		a := tar.NewWriter(z)
		if err := addStore(a, &counted{body, size, time.Now(), progress}, size); err != nil {
			return err
		}
		if err := addKeys(a, keys); err != nil {
			return err
		}
		return errors.Join(a.Close(), z.Close())
	})
}

// snapshot asks for the store. It is of the size that is said.
func (a Access) snapshot(ctx context.Context) (body io.ReadCloser, size int64, _ error) {
	c, err := a.rest()
	if err != nil {
		return nil, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Get().AbsPath(request.SnapshotPath).URL().String(), http.NoBody)
	if err != nil {
		return nil, 0, fmt.Errorf("ask for the store: %w", err)
	}
	req.Header.Set("Accept-Encoding", "identity") // else the answer does not say how long it is
	res, err := c.Client.Do(req)
	if err != nil {
		return nil, 0, err
	}
	switch {
	case res.StatusCode == http.StatusOK && res.ContentLength >= 0:
		return res.Body, res.ContentLength, nil
	case res.StatusCode == http.StatusNotFound:
		err = errors.New("the server keeps no store on the disk of this machine: of an etcd elsewhere (--etcd-servers) make the backup there; one in memory (--ephemeral) ends with the server")
	default:
		said, _ := io.ReadAll(io.LimitReader(res.Body, backupMost))
		err = fmt.Errorf("ask for the store: %s: %s", res.Status, strings.TrimSpace(string(said)))
	}
	return nil, 0, errors.Join(err, res.Body.Close())
}

// counted tells each second how much of what is read is left.
type counted struct {
	io.Reader
	left     int64
	told     time.Time
	progress func(left int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.left -= int64(n)
	if now := time.Now(); now.Sub(c.told) >= time.Second {
		c.told = now
		c.progress(c.left)
	}
	return n, err
}

func addStore(a *tar.Writer, store io.Reader, size int64) error {
	if err := a.WriteHeader(&tar.Header{Name: BackupStore, Mode: 0o600, Size: size, ModTime: time.Now()}); err != nil {
		return err
	}
	n, err := io.Copy(a, store)
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
		h := &tar.Header{Name: filepath.ToSlash(filepath.Join(BackupKeys, name)), Mode: int64(info.Mode().Perm()), Size: int64(len(data)), ModTime: info.ModTime()}
		if err := a.WriteHeader(h); err != nil {
			return err
		}
		_, err = a.Write(data)
		return err
	})
}
