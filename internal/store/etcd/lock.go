package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrInUse says that another process runs on the data directory.
var ErrInUse = errors.New("the data directory is in use")

// lockDir takes the directory for this process until the file is closed or the
// process ends in whatever way. It does not wait.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	path := filepath.Join(dir, "etcd.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
		}
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		holder, _ := os.ReadFile(path) // only for the message
		_ = f.Close()
		return nil, fmt.Errorf("%w: %s is held by another kemudi (process %s)", ErrInUse, dir, strings.TrimSpace(string(holder)))
	case err != nil:
		_ = f.Close()
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return f, nil
}
