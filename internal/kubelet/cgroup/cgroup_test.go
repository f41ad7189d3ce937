package cgroup

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/trace"
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func TestLimitsAreSetAndGroupsRemovedOnThisMachine(t *testing.T) {
	trace.Proves(t, "WHAT-021")
	tree := Open(Top)
	if os.Getuid() != 0 || tree.V2() {
		t.Skip("needs root, and looks at version 1")
	}
	name := "kemudi-cgroup-test-" + filepath.Base(t.TempDir())
	t.Cleanup(func() {
		if err := tree.Remove("/" + name); err != nil {
			t.Error(err)
		}
	})
	pod := "/" + name + "/kubepods/podx"
	limits := &runtimeapi.LinuxContainerResources{CpuShares: 512, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20}
	for range 2 { // the second time changes nothing
		if err := tree.Ensure(pod, limits); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{"cpu/%/cpu.shares": "512", "cpu/%/cpu.cfs_quota_us": "50000", "memory/%/memory.limit_in_bytes": "67108864"} {
		if got := read(t, filepath.Join(Top, strings.ReplaceAll(file, "%", pod))); got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
	if n, err := tree.Processes(pod); err != nil || n != 0 {
		t.Errorf("processes of a group without any: got %d, %v", n, err)
	}
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(func() { _, _ = sleeper.Process.Kill(), sleeper.Wait() })
	t.Cleanup(stop)
	pids := filepath.Join(Top, "pids", pod) // which runc makes
	if err := errors.Join(os.MkdirAll(pids, 0o755), os.WriteFile(filepath.Join(pids, "cgroup.procs"), []byte(strconv.Itoa(sleeper.Process.Pid)), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pod, "/" + name} { // the groups above count it too
		if n, err := tree.Processes(path); err != nil || n != 1 {
			t.Errorf("processes of %s with one: got %d, %v", path, n, err)
		}
	}
	stop()
	if n, err := tree.Processes("/" + name + "/none"); err != nil || n != 0 {
		t.Errorf("processes of a group that is not there: got %d, %v", n, err)
	}
	if err := tree.Ensure(pod, &runtimeapi.LinuxContainerResources{}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(Top, "cpu", pod, "cpu.cfs_quota_us")); got != "-1" {
		t.Errorf("quota without a limit: got %s", got)
	}
	if got := tree.Children("/" + name + "/kubepods"); !slices.Equal(got, []string{"podx"}) {
		t.Errorf("children: got %v", got)
	}
	for range 2 {
		if err := tree.Remove(pod); err != nil {
			t.Fatal(err)
		}
	}
	if got := tree.Children("/" + name + "/kubepods"); len(got) != 0 {
		t.Errorf("children after removal: got %v", got)
	}
}

func TestVersion2HasItsOwnFiles(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"", "a", "a/podx"} { // as the kernel would make them
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, dir, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree := Tree{top: top, v2: true}
	limits := &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100000, CpuQuota: 50000, MemoryLimitInBytes: 64 << 20}
	if err := tree.Ensure("/a/podx", limits); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"cpu.weight": "100", "cpu.max": "50000 100000", "memory.max": "67108864", "cgroup.subtree_control": "+pids"} {
		if got := read(t, filepath.Join(top, "a/podx", file)); got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
	if err := os.WriteFile(filepath.Join(top, "a/podx/pids.current"), []byte("7\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if n, err := tree.Processes("/a/podx"); err != nil || n != 7 {
		t.Errorf("processes: got %d, %v, want 7", n, err)
	}
	if err := tree.Ensure("/a/podx", &runtimeapi.LinuxContainerResources{CpuPeriod: 100000}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, filepath.Join(top, "a/podx/cpu.max")) + " " + read(t, filepath.Join(top, "a/podx/memory.max")); got != "max 100000 max" {
		t.Errorf("without limits: got %s", got)
	}
}

// A machine that cannot run pods says so before it tries, and what to do.
func TestChecksThatPodsCanHaveCgroups(t *testing.T) {
	top := t.TempDir()
	err := Tree{top: top}.Check("/a")
	if want := "no cgroups are mounted on " + top + ", and containers need them; mount them: mount -t cgroup2 cgroup2 " + top; err == nil || err.Error() != want {
		t.Errorf("without cgroups: got %v, want %s", err, want)
	}
	file := filepath.Join(top, "cgroup.controllers")
	if err := os.Mkdir(filepath.Join(top, "a"), 0o755); err != nil { // with its files, as the kernel would
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "a/cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for have, want := range map[string]string{"cpu pids\n": "lacks memory", "cpu hugetlb pids\n": "On a Raspberry Pi add cgroup_enable=memory to", "memory pids\n": "turn it off (/proc/cmdline)?", "cpu memory pids\n": ""} {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
		err := Tree{top: top, v2: true}.Check("/a/b")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("version 2 with %q: got %v, want %q", have, err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(top, "a/b")); err != nil {
		t.Errorf("the cgroup was not made: %v", err)
	}
	if got := read(t, filepath.Join(top, "a/cgroup.subtree_control")); got != "+pids" {
		t.Errorf("controllers of what is in the parent: got %q", got)
	}
	tree := Tree{top: top, v2: true}
	if tree.HasSwap("/a/b") {
		t.Error("there is a limit of swap, although the kernel does not show one")
	}
	if err := os.WriteFile(filepath.Join(top, "a/b/memory.swap.max"), []byte("max\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if !tree.HasSwap("/a/b") || (Tree{top: top}).HasSwap("/a/b") {
		t.Error("want a limit of swap under version 2, and none under version 1")
	}
	if tree := Open(Top); os.Getuid() == 0 && !tree.V2() {
		name := "/kemudi-cgroup-test-" + filepath.Base(t.TempDir())
		if err := tree.Check(name); err != nil {
			t.Error(err)
		}
		if err := tree.Remove(name); err != nil {
			t.Error(err)
		}
	}
}

// A container of one CPU weighs as much as any other service of the machine.
func TestWeightsOfVersion2AreThoseThatRuncGivesContainers(t *testing.T) {
	for shares, want := range map[int64]int64{0: 1, 2: 1, 3: 2, 10: 4, 102: 17, 256: 35, 512: 59, 1024: 100, 2048: 174, 262144: 10000, 1 << 40: 10000} {
		if got := weight(shares); got != want {
			t.Errorf("weight of %d shares: got %d, want %d", shares, got, want)
		}
	}
}
