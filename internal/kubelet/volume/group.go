package volume

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
)

// groupChange says when what is in a pod's volumes is given to its group.
func groupChange(pod *v1.Pod) v1.PodFSGroupChangePolicy {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroupChangePolicy != nil {
		return *sc.FSGroupChangePolicy
	}
	return v1.FSGroupChangeAlways
}

// Giving gives volumes to the group of a pod.
type Giving struct {
	Pod  *v1.Pod
	Tell Teller
	Log  *slog.Logger
}

// Give gives a volume and all that is in it to a group (nil: nobody wants it), unless its root is the group's already and the pod says
// that this is enough. Files that cannot be given stay as they are: there are file systems without groups.
func (g *Giving) Give(dir string, group *int64) error {
	if group == nil {
		return nil
	}
	at, err := filepath.EvalSymlinks(dir) // which are not followed below
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	info, err := os.Stat(at)
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	if groupChange(g.Pod) == v1.FSGroupChangeOnRootMismatch && sharedWith(info, *group) {
		return nil
	}
	var files atomic.Int64
	defer g.report(dir, &files)()
	var left error // of the first file that was not given
	failed := 0
	share := func(path string, info fs.FileInfo) {
		files.Add(1)
		if err := shareFile(path, info, *group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			left, failed = cmp.Or(left, err), failed+1
		}
	}
	err = filepath.WalkDir(at, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == at {
			return err
		}
		info, err := d.Info()
		if err == nil {
			share(path, info)
		} else if errors.Is(err, fs.ErrNotExist) { // meanwhile
			err = nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	share(at, info) // last: it says that all the rest is done
	if failed > 0 {
		g.Log.Warn("give files of a volume to the group of a pod", "path", at, "group", *group, "left", failed, "err", left)
	}
	return nil
}

// How long it takes until people are told that a volume is being given to a group, and until they are told again.
const (
	slowAfter = 30 * time.Second
	slowAgain = time.Minute
)

const howToSkip = "https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"

// report tells people while it takes long to give a volume to a group, until stop is called.
func (g *Giving) report(dir string, files *atomic.Int64) (stop func()) {
	if i := strings.Index(dir, string(g.Pod.UID)); i > 0 {
		dir = dir[i:]
	}
	var mu sync.Mutex
	var next *time.Timer
	told := false
	tell := func() {
		mu.Lock()
		defer mu.Unlock()
		if next == nil { // stopped
			return
		}
		message := fmt.Sprintf("Setting volume ownership for %s is taking longer than expected, consider using OnRootMismatch - %s", dir, howToSkip)
		if told {
			message = fmt.Sprintf("Setting volume ownership for %s, processed %d files.", dir, files.Load())
		}
		told = true
		g.Tell.TellOf(g.Pod, "VolumePermissionChangeInProgress", message)
		next.Reset(slowAgain)
	}
	mu.Lock()
	defer mu.Unlock()
	next = time.AfterFunc(slowAfter, tell)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		next.Stop()
		next = nil
	}
}

// sharedWith reports whether a directory is as shareFile leaves it.
func sharedWith(info fs.FileInfo, group int64) bool {
	const want = 0o770
	return groupIn(info) == group && info.Mode()&fs.ModeSetgid != 0 && info.Mode().Perm()&want == want
}

// groupIn is the group that a file belongs to; -1: nobody knows.
func groupIn(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(stat.Gid)
	}
	return -1
}

// shareFile gives a file to a group that may read and write it; a directory so that what is made in it is the group's too.
func shareFile(path string, info fs.FileInfo, group int64) error {
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return err
	}
	mode := info.Mode() | 0o660
	switch {
	case info.Mode()&fs.ModeSymlink != 0: // has no mode of its own
		return nil
	case info.IsDir():
		mode |= 0o110 | fs.ModeSetgid
	}
	return os.Chmod(path, mode)
}
