package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kemudi/kemudi/internal/task"
)

// cgroupTop is where the kernel shows cgroups.
const cgroupTop = "/sys/fs/cgroup"

// version2 reports whether there is the unified hierarchy only.
func version2() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupTop, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// shimCgroup is where shims run under version 2, beside the containers. In the
// cgroup of whoever started this process, a login or a service, they would count
// as its memory and could be ended with it.
func (o Options) shimCgroup() string { return filepath.Join(o.CgroupParent, "shims") }

// makeShimCgroup makes that cgroup, where it is used.
func makeShimCgroup(o Options) error {
	if !version2() {
		return nil
	}
	return os.MkdirAll(filepath.Join(cgroupTop, o.shimCgroup()), 0o755)
}

// cgroupRoots returns where the kernel shows cgroups: one directory under
// version 2, one per controller (and often one of version 2) under version 1.
func cgroupRoots() (roots []string) {
	if version2() {
		return []string{cgroupTop}
	}
	var st unix.Statfs_t
	for _, name := range names(cgroupTop) {
		dir := filepath.Join(cgroupTop, name)
		if err := unix.Statfs(dir, &st); err == nil && (st.Type == unix.CGROUP_SUPER_MAGIC || st.Type == unix.CGROUP2_SUPER_MAGIC) {
			roots = append(roots, dir)
		}
	}
	return roots
}

// cgroupTree returns the directories of a cgroup and all below it, in all
// hierarchies, children before their parents.
func cgroupTree(parent string) (dirs []string) {
	for _, root := range cgroupRoots() {
		filepath.WalkDir(filepath.Join(root, parent), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // what vanishes meanwhile is as good as removed
		})
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return dirs
}

// cgroupProcesses returns the processes in a cgroup and all below it.
func cgroupProcesses(parent string) (pids []int) {
	for _, dir := range cgroupTree(parent) {
		data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for line := range strings.FieldsSeq(string(data)) {
			if pid, err := strconv.Atoi(line); err == nil && pid > 0 && pid != os.Getpid() {
				pids = append(pids, pid)
			}
		}
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// removeCgroups removes a cgroup and all below it and returns how many it
// removed. A group whose last process just died stays busy for a moment.
func removeCgroups(ctx context.Context, parent string) (n int, err error) {
	wait := task.Backoff{Initial: time.Millisecond, Max: 50 * time.Millisecond}
	for _, dir := range cgroupTree(parent) {
		for deadline := time.Now().Add(2 * time.Second); ; {
			rerr := unix.Rmdir(dir)
			if rerr == nil {
				n++
			}
			if rerr == nil || errors.Is(rerr, unix.ENOENT) {
				break
			}
			if time.Now().After(deadline) || task.Sleep(ctx, wait.Next()) != nil {
				err = errors.Join(err, fmt.Errorf("remove cgroup %s: %w", dir, rerr))
				break
			}
		}
	}
	return n, err
}

// processes returns the numbers of all processes.
func processes() (pids []int) {
	for _, name := range names("/proc") {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
