package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// needed are the controllers without which no container starts.
var needed = []string{"cpu", "memory", "pids", "devices", "freezer"}

// Check makes the cgroup below which those of pods will be, and so finds out
// whether this machine can run pods at all. Its error says what to do about it.
func (t Tree) Check(path string) error {
	dirs, err := t.hierarchies()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		var err error
		if t.v2 {
			err = t.makeV2(path)
		} else if err = os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			err = fmt.Errorf("make cgroup: %w", err)
		}
		if errors.Is(err, unix.EROFS) || errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%w; containers need cgroups that can be written (inside a container: one that is privileged)", err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hierarchies are those in which pods have a cgroup of their own.
func (t Tree) hierarchies() ([]string, error) {
	if t.v2 {
		have, err := os.ReadFile(filepath.Join(t.top, "cgroup.controllers"))
		if err != nil {
			return nil, fmt.Errorf("read cgroup controllers: %w", err)
		}
		for _, c := range []string{"cpu", "memory", "pids"} { // the others are built in
			if slices.Contains(strings.Fields(string(have)), c) {
				continue
			}
			hint := ""
			if c == "memory" { // the one machine on which that is usual
				hint = " On a Raspberry Pi add cgroup_enable=memory to the one line of /boot/firmware/cmdline.txt (/boot/cmdline.txt on old systems), and reboot."
			}
			return nil, fmt.Errorf("%s/cgroup.controllers lacks %s, which containers need; does the kernel's command line turn it off (/proc/cmdline)?%s", t.top, c, hint)
		}
		return []string{t.top}, nil
	}
	mounted := 0
	lacking := ""
	for _, c := range needed {
		var st unix.Statfs_t
		if unix.Statfs(filepath.Join(t.top, c), &st) == nil && st.Type == unix.CGROUP_SUPER_MAGIC {
			mounted++
		} else if lacking == "" {
			lacking = c
		}
	}
	switch {
	case mounted == 0:
		return nil, fmt.Errorf("no cgroups are mounted on %s, and containers need them; mount them: mount -t cgroup2 cgroup2 %s", t.top, t.top)
	case lacking != "":
		dir := filepath.Join(t.top, lacking)
		return nil, fmt.Errorf("no cgroups are mounted on %s, and containers need them; mount them: mkdir -p %s && mount -t cgroup -o %s cgroup %s", dir, dir, lacking, dir)
	}
	return []string{filepath.Join(t.top, "cpu"), filepath.Join(t.top, "memory")}, nil
}
