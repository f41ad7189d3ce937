package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Top is where the kernel shows cgroups.
const Top = "/sys/fs/cgroup"

// Tree is the machine's cgroups.
type Tree struct {
	top string
	v2  bool
}

// Open finds out which version there is below top.
func Open(top string) Tree {
	var st unix.Statfs_t
	return Tree{top: top, v2: unix.Statfs(top, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC}
}

// V2 reports whether there is the unified hierarchy only.
func (t Tree) V2() bool { return t.v2 }

// controllers are those that limits are set in.
var controllers = []string{"cpu", "memory", "hugetlb", "cpuset", "pids", "io"}

// Ensure makes the cgroup and its parents and sets its limits; a limit of 0 is none.
func (t Tree) Ensure(path string, r *runtimeapi.LinuxContainerResources) error {
	if t.v2 {
		return t.ensureV2(path, r)
	}
	cpu := filepath.Join(t.top, "cpu", path)
	memory := filepath.Join(t.top, "memory", path)
	for _, dir := range []string{cpu, memory} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	quota := int64(-1)
	if r.CpuQuota > 0 {
		quota = r.CpuQuota
	}
	limit := int64(-1)
	if r.MemoryLimitInBytes > 0 {
		limit = r.MemoryLimitInBytes
	}
	err := errors.Join(
		set(cpu, "cpu.shares", strconv.FormatInt(max(r.CpuShares, 2), 10)),
		setIf(r.CpuPeriod > 0, cpu, "cpu.cfs_period_us", strconv.FormatInt(r.CpuPeriod, 10)),
		set(cpu, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)),
		set(memory, "memory.limit_in_bytes", strconv.FormatInt(limit, 10)),
	)
	if err != nil || len(r.HugepageLimits) == 0 {
		return err
	}
	if _, err := os.Stat(filepath.Join(t.top, "hugetlb")); err != nil {
		return nil // this kernel does not account for them
	}
	huge := filepath.Join(t.top, "hugetlb", path)
	if err := os.MkdirAll(huge, 0o755); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	for _, h := range r.HugepageLimits {
		err = errors.Join(err, set(huge, "hugetlb."+h.PageSize+".limit_in_bytes", strconv.FormatUint(h.Limit, 10)))
	}
	return err
}

func (t Tree) ensureV2(path string, r *runtimeapi.LinuxContainerResources) error {
	if err := t.makeV2(path); err != nil {
		return err
	}
	dir := filepath.Join(t.top, path)
	if err := delegate(dir); err != nil {
		return err
	}
	quota, memory := "max", "max"
	if r.CpuQuota > 0 {
		quota = strconv.FormatInt(r.CpuQuota, 10)
	}
	if r.MemoryLimitInBytes > 0 {
		memory = strconv.FormatInt(r.MemoryLimitInBytes, 10)
	}
	err := errors.Join(
		set(dir, "cpu.weight", strconv.FormatInt(weight(r.CpuShares), 10)),
		set(dir, "cpu.max", fmt.Sprintf("%s %d", quota, max(r.CpuPeriod, 1000))),
		set(dir, "memory.max", memory),
	)
	for _, h := range r.HugepageLimits {
		err = errors.Join(err, set(dir, "hugetlb."+h.PageSize+".max", strconv.FormatUint(h.Limit, 10)))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Unified)) {
		err = errors.Join(err, set(dir, name, r.Unified[name]))
	}
	return err
}

// Protect keeps memory for a cgroup of version 2, which is made if needed: least of it always, low of it while there is other
// memory to be had, both in bytes.
func (t Tree) Protect(path string, least, low int64) error {
	if err := t.makeV2(path); err != nil {
		return err
	}
	dir := filepath.Join(t.top, path)
	return errors.Join(
		delegate(dir),
		set(dir, "memory.min", strconv.FormatInt(least, 10)),
		set(dir, "memory.low", strconv.FormatInt(low, 10)),
	)
}

// Unprotect keeps no memory for a cgroup any more. One that is not there needs nothing.
func (t Tree) Unprotect(path string) error {
	dir := filepath.Join(t.top, path)
	if !t.v2 {
		return nil
	}
	return errors.Join(reset(dir, "memory.min", "0"), reset(dir, "memory.low", "0"))
}

// Unlimit lets a cgroup have as much memory as those above it. One that is not there needs nothing.
func (t Tree) Unlimit(path string) error {
	if t.v2 {
		return reset(filepath.Join(t.top, path), "memory.max", "max")
	}
	return reset(filepath.Join(t.top, "memory", path), "memory.limit_in_bytes", "-1")
}

// reset is set for a file that may not be there.
func reset(dir, name, value string) error {
	if _, err := os.Stat(filepath.Join(dir, name)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return set(dir, name, value)
}

// Join puts a process into a cgroup that Ensure has made. What it starts later is there too.
func (t Tree) Join(path string, pid int) error {
	dirs := []string{filepath.Join(t.top, path)}
	if !t.v2 {
		dirs = []string{filepath.Join(t.top, "cpu", path), filepath.Join(t.top, "memory", path)}
	}
	for _, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			return fmt.Errorf("put process %d into cgroup %s: %w", pid, path, err)
		}
	}
	return nil
}

// makeV2 makes a cgroup of version 2 and its parents, which let it have controllers.
func (t Tree) makeV2(path string) error {
	dir := t.top
	for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if err := delegate(dir); err != nil {
			return err
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("make cgroup: %w", err)
		}
	}
	return nil
}

// weight is what version 2 has for shares of version 1. As runc does for
// containers, it maps the least, the most and what a CPU stands for (1024, and the
// weight 100 that every other cgroup of the machine has) to each other, and what is between
// them to a parabola on logarithmic scales.
func weight(shares int64) int64 {
	switch {
	case shares <= 2:
		return 1
	case shares >= 262144:
		return 10000
	}
	l := math.Log2(float64(shares))
	return int64(math.Ceil(math.Pow(10, (l*l+125*l)/612-7.0/34)))
}

// HasSwap reports whether the swap of a cgroup, which Check has made, can be
// limited: under version 2, on a kernel that accounts for it.
func (t Tree) HasSwap(path string) bool {
	if !t.v2 {
		return false
	}
	_, err := os.Stat(filepath.Join(t.top, path, "memory.swap.max"))
	return err == nil
}

// delegate lets the children of a version 2 cgroup have controllers.
func delegate(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read cgroup controllers: %w", err)
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(have)), c) {
			continue
		}
		if err := set(dir, "cgroup.subtree_control", "+"+c); err != nil {
			return err
		}
	}
	return nil
}

// Shares sets the CPU weight of a cgroup, which is made if needed.
func (t Tree) Shares(path string, shares int64) error { return t.Hold(path, Bound{Shares: shares}) }

func setIf(yes bool, dir, name, value string) error {
	if !yes {
		return nil
	}
	return set(dir, name, value)
}

// set writes a value unless it is there already.
func set(dir, name, value string) error {
	path := filepath.Join(dir, name)
	if old, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(old)) == value {
		return nil
	}
	if err := os.WriteFile(path, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set cgroup limit: %w", err)
	}
	return nil
}

// roots are the directories that hold hierarchies.
func (t Tree) roots() []string {
	if t.v2 {
		return []string{t.top}
	}
	entries, err := os.ReadDir(t.top)
	if err != nil {
		return nil
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, filepath.Join(t.top, e.Name()))
		}
	}
	return out
}

// Processes is how many processes and threads a cgroup and those below it have.
func (t Tree) Processes(path string) (int64, error) {
	dir := filepath.Join(t.top, "pids", path)
	if t.v2 {
		dir = filepath.Join(t.top, path)
	}
	text, err := os.ReadFile(filepath.Join(dir, "pids.current"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil // the pod has ended
	}
	if err != nil {
		return 0, fmt.Errorf("count processes: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("count processes of cgroup %s: %w", path, err)
	}
	return n, nil
}

// Remove removes a cgroup and those below it from all hierarchies. One in which
// a process is left stays, and is an error.
func (t Tree) Remove(path string) error {
	var errs []error
	for _, root := range t.roots() {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(root, path), func(dir string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, dir)
			}
			return nil // what vanishes meanwhile is as good as removed
		})
		errs = append(errs, err)
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Children lists the cgroups directly below path.
func (t Tree) Children(path string) []string {
	seen := map[string]bool{}
	var out []string
	for _, root := range t.roots() {
		entries, err := os.ReadDir(filepath.Join(root, path))
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() && !seen[e.Name()] {
				seen[e.Name()] = true
				out = append(out, e.Name())
			}
		}
	}
	slices.Sort(out)
	return out
}
