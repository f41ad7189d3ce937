package container

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/task"
)

// ErrInUse says that another process owns the data directory.
var ErrInUse = errors.New("in use by another kemudi process")

// lockDir takes the exclusive lock of invariant I1 and writes our process
// number into the file, for the message the second one gets. Closing the file,
// as the kernel does for the dead, drops the lock.
func lockDir(ctx context.Context, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("lock container runtime: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock container runtime: %w", err)
	}
	if err := flock(ctx, f); err != nil {
		f.Close()
		return nil, err
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock container runtime: %w", err)
	}
	return f, nil
}

// flock takes the lock, or says at once who has it. It waits for an owner that
// is dead: a program it was about to start holds the lock a moment longer.
func flock(ctx context.Context, f *os.File) error {
	wait, deadline := task.Backoff{Initial: time.Millisecond, Max: 50 * time.Millisecond}, time.Now().Add(2*time.Second)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock container runtime: %w", err)
		}
		owner := "unknown"
		if data, err := os.ReadFile(f.Name()); err == nil {
			owner = strings.TrimSpace(string(data))
		}
		pid, err := strconv.Atoi(owner)
		dead := err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
		if !dead || time.Now().After(deadline) {
			return fmt.Errorf("container runtime directory %s is %w (pid %s)", filepath.Dir(f.Name()), ErrInUse, owner)
		}
		if err := task.Sleep(ctx, wait.Next()); err != nil {
			return fmt.Errorf("lock container runtime: %w", err)
		}
	}
}
