package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// file is a file that lines are added to, each as a whole (U3). One that has become too
// large gets another name, which tells when, and a new one takes its place; old
// ones are compressed and removed by run.
type file struct {
	path    string
	most    int64 // bytes; 0: it is never turned over
	keep    keeping
	regular bool // it can be cut, unlike a pipe
	turned  chan struct{}
	told    *telling

	// mu is held while a line is written: what is left of one that did not fit on
	// the disk must be gone before the next.
	mu struct {
		sync.Mutex
		f    *os.File
		size int64
	}
}

var errClosed = errors.New("the audit log has been closed: the server ends")

// Who may read the file, and the directory of it if that has to be made.
const (
	fileMode      = 0o600
	directoryMode = 0o700
)

// openFile opens the file that is asked for, and makes it if it is not there.
func openFile(o *FileOptions, t *telling) (*file, error) {
	f := &file{
		path: o.Path, most: int64(o.MaxSize) << 20, turned: make(chan struct{}, 1), told: t, // a token: there may be something to do
		keep: keeping{days: o.MaxAge, files: o.MaxBackups, compress: o.Compress},
	}
	if o.Path == "-" {
		f.most, f.mu.f = 0, os.Stdout
		return f, nil
	}
	if err := os.MkdirAll(filepath.Dir(o.Path), directoryMode); err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(o.Path, os.O_CREATE|os.O_APPEND|os.O_RDWR, fileMode)
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat()
	if err == nil && info.Mode().IsRegular() {
		f.regular = true
		f.mu.size, err = mendTail(opened, info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	if !f.regular {
		f.most = 0
	}
	f.mu.f = opened
	return f, nil
}

// mendTail cuts off a line that the end of the process or the machine has left without
// its end, if there are lines before, and returns the file's size.
func mendTail(f *os.File, size int64) (int64, error) {
	const piece = 64 << 10
	buf := make([]byte, piece)
	for end := size; end > 0; {
		start := max(end-piece, 0)
		n, err := f.ReadAt(buf[:end-start], start)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if at := bytes.LastIndexByte(buf[:n], '\n'); at >= 0 {
			end = start + int64(at) + 1
			if end == size {
				return size, nil
			}
			return end, f.Truncate(end)
		}
		end = start
	}
	return size, nil
}

// write adds a line.
func (f *file) write(line []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.f == nil {
		return errClosed
	}
	if f.most > 0 && f.mu.size > 0 && f.mu.size+int64(len(line)) > f.most {
		if err := f.turnLocked(time.Now()); err != nil {
			return fmt.Errorf("turn the audit log over: %w", err)
		}
	}
	n, err := f.mu.f.Write(line)
	if err != nil && n > 0 && f.regular {
		if cut := f.mu.f.Truncate(f.mu.size); cut == nil {
			n = 0
		}
	}
	f.mu.size += int64(n)
	return err
}

// turnLocked gives the file another name, and opens a new one with its mode and owner.
func (f *file) turnLocked(now time.Time) error {
	info, err := f.mu.f.Stat()
	if err != nil {
		return err
	}
	old := oldName(f.path, now)
	for there(old) {
		now = now.Add(time.Millisecond)
		old = oldName(f.path, now)
	}
	if err := os.Rename(f.path, old); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	opened, err := os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_RDWR, info.Mode().Perm())
	if err != nil {
		// Better in the old file than nowhere.
		return errors.Join(err, os.Rename(old, f.path))
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && int(owner.Uid) != os.Getuid() {
		_ = opened.Chown(int(owner.Uid), int(owner.Gid)) // who may not, leaves it to who it is
	}
	_ = f.mu.f.Close() // all of it has been written
	f.mu.f, f.mu.size = opened, 0
	select {
	case f.turned <- struct{}{}:
	default:
	}
	return nil
}

// there reports whether a file has the name, or has had it before it was compressed.
func there(name string) bool {
	_, err := os.Lstat(name)
	_, packed := os.Lstat(name + packedSuffix)
	return err == nil || packed == nil
}

// run tidies old files up, at first those of an earlier process, until ctx ends, and closes
// the file then.
func (f *file) run(ctx context.Context) error {
	defer f.close()
	for {
		if f.most > 0 {
			if err := f.keep.tidy(ctx, f.path, time.Now()); err != nil && ctx.Err() == nil {
				f.told.log.Warn("old audit logs cannot be compressed or removed", "path", f.path, "err", err)
			}
		}
		select {
		case <-f.turned:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *file) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.f != os.Stdout {
		_ = f.mu.f.Close() // all of it has been written
	}
	f.mu.f = nil
}
