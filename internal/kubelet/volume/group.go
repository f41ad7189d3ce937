package volume

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	v1 "k8s.io/api/core/v1"
)

// GroupChange says when what is in a pod's volumes is given to its group.
func GroupChange(pod *v1.Pod) v1.PodFSGroupChangePolicy {
	if sc := pod.Spec.SecurityContext; sc != nil && sc.FSGroupChangePolicy != nil {
		return *sc.FSGroupChangePolicy
	}
	return v1.FSGroupChangeAlways
}

// GiveTo gives a volume and all that is in it to a group (nil: nobody wants it), unless its root is the group's already and when says
// that this is enough.
func GiveTo(dir string, group *int64, when v1.PodFSGroupChangePolicy) error {
	if group == nil {
		return nil
	}
	dir, err := filepath.EvalSymlinks(dir) // which are not followed below
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	if when == v1.FSGroupChangeOnRootMismatch && sharedWith(info, *group) {
		return nil
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir || d.Type()&fs.ModeSymlink != 0 {
			return err
		}
		return shareFile(path, d, *group)
	})
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	return shareAll(dir, *group) // last: it says that all the rest is done
}

// sharedWith reports whether a directory is as shareAll leaves it.
func sharedWith(info fs.FileInfo, group int64) bool {
	const want = 0o770
	return groupIn(info) == group && info.Mode()&fs.ModeSetgid != 0 && info.Mode().Perm()&want == want
}

// groupOf is the group that what lies at a path belongs to.
func groupOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, fmt.Errorf("look whose a volume is: %w", err)
	}
	return groupIn(info), nil
}

// groupIn is the group that a file belongs to; -1: nobody knows.
func groupIn(info fs.FileInfo) int64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int64(stat.Gid)
	}
	return -1
}

func shareFile(path string, d fs.DirEntry, group int64) error {
	if d.IsDir() {
		return shareAll(path, group)
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if err := os.Lchown(path, -1, int(group)); err != nil {
		return err
	}
	return os.Chmod(path, info.Mode().Perm()|0o660)
}

// shareAll gives a directory to a group that may write there.
func shareAll(dir string, group int64) error {
	if err := shareWith(dir, group); err != nil {
		return err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	return os.Chmod(dir, info.Mode().Perm()|0o770|fs.ModeSetgid)
}
