package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestHoldsACgroupAndGivesBackThatOfOthersOnThisMachine(t *testing.T) {
	tree := Open(Top)
	if os.Getuid() != 0 || tree.V2() {
		t.Skip("needs root, and looks at version 1")
	}
	name := "/kemudi-hold-test-" + filepath.Base(t.TempDir())
	t.Cleanup(func() {
		if err := tree.Remove(name); err != nil {
			t.Error(err)
		}
	})
	file := func(controller, name string) func(string) string {
		return func(path string) string { return filepath.Join(Top, controller, path, name) }
	}
	shares, memory, quota, pids := file("cpu", "cpu.shares"), file("memory", "memory.limit_in_bytes"), file("cpu", "cpu.cfs_quota_us"), file("pids", "pids.max")
	pods, other, note := name+"/kubepods", name+"/system", filepath.Join(t.TempDir(), "note")
	if err := tree.Hold(pods, Bound{Shares: 1500, Memory: 64 << 20, Processes: 300}); err != nil {
		t.Fatal(err)
	}
	if err := tree.Shares(pods, 700); err != nil { // which leaves the rest as it is
		t.Fatal(err)
	}
	if err := tree.HoldOther(other, Bound{Shares: 512}, note); err == nil || err.Error() != `"`+other+`" cgroup does not exist` {
		t.Errorf("a cgroup that is not there: got %v", err)
	}
	if err := tree.Hold(other, Bound{Shares: 900, Memory: 128 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(quota(other), []byte("50000"), 0); err != nil {
		t.Fatal(err)
	}
	for _, b := range []Bound{{Shares: 512, Memory: 64 << 20}, {Shares: 256, Memory: 32 << 20}} { // the second one is what another start is told
		if err := tree.HoldOther(other, b, note); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want map[string]string) {
		t.Helper()
		for file, want := range want {
			if got := read(t, file); got != want {
				t.Errorf("%s: got %s, want %s", file, got, want)
			}
		}
	}
	expect(map[string]string{shares(pods): "700", memory(pods): "67108864", pids(pods): "300", shares(other): "256", memory(other): "33554432", quota(other): "50000"})
	if got, err := GiveBack(note); err != nil || !slices.Equal(got, []string{shares(other), memory(other)}) {
		t.Errorf("given back: got %v, %v", got, err)
	}
	expect(map[string]string{shares(other): "900", memory(other): "134217728", quota(other): "50000"})
	if got, err := GiveBack(note); err != nil || len(got) > 0 {
		t.Errorf("given back again: got %v, %v", got, err)
	}
}

func TestVersion2HoldsACgroupButNotBelowWhatItUses(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "pods")
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put("cgroup.controllers", "cpu memory pids\n") // as the kernel would make them
	put("pods/cgroup.controllers", "cpu memory pids\n")
	put("pods/memory.current", "100000\n")
	put("pods/memory.stat", "anon 1\ninactive_file 40000\n")
	put("pods/memory.max", "max\n")
	tree, note := Tree{top: top, v2: true}, filepath.Join(t.TempDir(), "note")
	for _, hold := range []func(Bound) error{
		func(b Bound) error { return tree.Hold("/pods", b) },
		func(b Bound) error { return tree.HoldOther("/pods", b, note) },
	} {
		if err := hold(Bound{Memory: 50000}); err == nil || !strings.HasSuffix(err.Error(), "to 50000: 60000 are in use") || read(t, filepath.Join(dir, "memory.max")) != "max" {
			t.Errorf("less than is in use: got %v, want that it is refused", err)
		}
	}
	if err := tree.Hold("/pods", Bound{Shares: 1024, Memory: 70000, Processes: 9}); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"memory.max": "70000", "cpu.weight": "100", "pids.max": "9"} {
		if got := read(t, filepath.Join(dir, file)); got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
}

func TestMemoryIsKeptInAFakeHierarchy(t *testing.T) {
	top := t.TempDir()
	put := func(path, name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(top, path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, path, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"", "kubepods", "kubepods/burstable", "kubepods/burstable/pod1"} {
		put(path, "cgroup.controllers", "cpu memory")
		put(path, "cgroup.subtree_control", "")
	}
	tree := Tree{top: top, v2: true}
	if err := tree.Protect("/kubepods/burstable", 0, 3000); err != nil {
		t.Fatal(err)
	}
	limits := &runtimeapi.LinuxContainerResources{CpuShares: 1024, CpuPeriod: 100000, MemoryLimitInBytes: 9000, Unified: map[string]string{"memory.low": "1000", "memory.high": "8000"}}
	if err := tree.Ensure("/kubepods/burstable/pod1", limits); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		"kubepods/burstable/memory.min": "0", "kubepods/burstable/memory.low": "3000", "kubepods/burstable/pod1/memory.low": "1000",
		"kubepods/burstable/pod1/memory.high": "8000", "kubepods/burstable/pod1/memory.max": "9000",
	} {
		if got := read(t, filepath.Join(top, file)); got != want {
			t.Errorf("%s: got %s, want %s", file, got, want)
		}
	}
	put("kubepods/burstable", "memory.max", "5000")
	for _, path := range []string{"/kubepods/burstable", "/kubepods/none"} {
		if err := errors.Join(tree.Unprotect(path), tree.Unlimit(path)); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, filepath.Join(top, "kubepods/burstable/memory.low")) + " " + read(t, filepath.Join(top, "kubepods/burstable/memory.max")); got != "0 max" {
		t.Errorf("after it was let go: got %s", got)
	}
	if _, err := os.Stat(filepath.Join(top, "kubepods/none")); err == nil {
		t.Error("a cgroup was made to be let go")
	}
}
