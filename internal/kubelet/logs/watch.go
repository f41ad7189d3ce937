package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher tells that the file at a path, or what the path leads to, may have changed.
type watcher struct {
	changed chan struct{} // holds one token
	f       *os.File
	wg      sync.WaitGroup
}

// newWatcher watches the directory of the path: that covers the file, its
// replacement and its writers.
func newWatcher(path string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	w := &watcher{changed: make(chan struct{}, 1), f: os.NewFile(uintptr(fd), "inotify")}
	const what = unix.IN_MODIFY | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE
	if _, err := unix.InotifyAddWatch(fd, filepath.Dir(path), what); err != nil {
		_ = w.f.Close() // nothing was read
		return nil, fmt.Errorf("watch %s: %w", filepath.Dir(path), err)
	}
	w.wg.Go(w.run)
	return w, nil
}

// run turns events, whatever they say, into tokens until the file is closed.
func (w *watcher) run() {
	buf := make([]byte, 4096)
	for {
		if _, err := w.f.Read(buf); err != nil {
			return
		}
		select {
		case w.changed <- struct{}{}:
		default: // it has been told
		}
	}
}

func (w *watcher) close() {
	_ = w.f.Close() // which is what ends run
	w.wg.Wait()
}
