package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/backup"
)

// backupMost is how much of an answer that is none is told.
const backupMost = 1 << 10

// Backup writes a backup of the cluster whose server runs on this machine, which goes on meanwhile, to a file: an archive of its
// store and its keys. The file is there when all of it is on the disk, and whole; one of that name is there until then.
// progress is told from time to time how many bytes of the store are left.
func Backup(ctx context.Context, dataDir, file string, progress func(left int64)) error {
	keys := filepath.Join(dataDir, backup.KeysName)
	if _, err := os.Stat(keys); err != nil {
		return fmt.Errorf("look for the keys of a server on this machine: %w; name its directory (--data-dir)", err)
	}
	body, size, err := Access{DataDir: dataDir}.snapshot(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	return backup.Write(ctx, file, &counted{body, size, size, time.Now(), progress}, keys)
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

// counted is a store that tells each second how much of it is left.
type counted struct {
	body       io.Reader
	size, left int64
	told       time.Time
	progress   func(left int64)
}

func (c *counted) Size() int64 { return c.size }

// WriteTo is for [backup.Store].
func (c *counted) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, io.TeeReader(c.body, c)) }

// Write counts what is read.
func (c *counted) Write(p []byte) (int, error) {
	c.left -= int64(len(p))
	if now := time.Now(); now.Sub(c.told) >= time.Second {
		c.told = now
		c.progress(c.left)
	}
	return len(p), nil
}
