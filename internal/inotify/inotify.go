package inotify

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// What can be watched for, to be combined.
const (
	// Written is that something was written to a file, which may not be all yet.
	Written = unix.IN_MODIFY | unix.IN_CREATE
	// Closed is that who wrote to a file has closed it.
	Closed = unix.IN_CLOSE_WRITE
	// Moved is that files came, went, or changed their names.
	Moved = unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
)

// Watcher watches directories until it is closed.
type Watcher struct {
	Changed chan struct{} // holds one token: something has happened

	f    *os.File
	what uint32
	wg   sync.WaitGroup
}

// Watch begins to watch the directory.
func Watch(dir string, what uint32) (*Watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	w := &Watcher{Changed: make(chan struct{}, 1), f: os.NewFile(uintptr(fd), "inotify"), what: what}
	if _, err := unix.InotifyAddWatch(fd, dir, what); err != nil {
		_ = w.f.Close() // nothing was read
		return nil, fmt.Errorf("watch %s: %w", dir, err)
	}
	w.wg.Go(w.run)
	return w, nil
}

// Add has a further directory watched; one that is watched already stays so. What has gone is
// not watched any more.
func (w *Watcher) Add(dir string) error {
	conn, err := w.f.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	var watched error
	if err := conn.Control(func(fd uintptr) { _, watched = unix.InotifyAddWatch(int(fd), dir, w.what) }); err != nil {
		return fmt.Errorf("watch %s: %w", dir, err)
	}
	if watched != nil {
		return fmt.Errorf("watch %s: %w", dir, watched)
	}
	return nil
}

// run turns events, whatever they say, into tokens until the file is closed.
func (w *Watcher) run() {
	buf := make([]byte, 4096)
	for {
		if _, err := w.f.Read(buf); err != nil {
			return
		}
		select {
		case w.Changed <- struct{}{}:
		default: // it has been told
		}
	}
}

// Close ends the watch and waits until nothing of it runs.
func (w *Watcher) Close() {
	_ = w.f.Close() // which is what ends run
	w.wg.Wait()
}
