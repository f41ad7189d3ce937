package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

func TestResetEndsWhatIsStillBeingStarted(t *testing.T) {
	const busybox = "/bin/busybox"
	program, err := os.ReadFile(busybox)
	if err != nil || os.Getuid() != 0 {
		t.Skipf("needs root and a static busybox: %v", err)
	}
	dir, err := os.MkdirTemp("/tmp", "kcr") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	o, err := (Options{DataDir: dir + "/data", RunDir: dir + "/run", CgroupParent: "/" + filepath.Base(dir) + "-none"}).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(o.binDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(o.binDir(), "busybox"), program, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "sleep", "setsid"} {
		if err := os.Symlink("busybox", filepath.Join(o.binDir(), name)); err != nil {
			t.Fatal(err)
		}
	}
	// A relay: each program starts the next one and ends, so that whoever looks
	// once sees only those that are over by the time they are killed.
	relay := "#!" + o.binDir() + "/sh\n[ $1 -gt 0 ] || exec sleep 1000\nsetsid $0 $(($1-1)) &\nexec sleep 0.02\n"
	if err := os.WriteFile(filepath.Join(o.binDir(), "relay"), []byte(relay), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(o.binDir(), "relay"), "300")
	cmd.Env = []string{"PATH=" + o.binDir()}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if _, err := Reset(context.Background(), o); err != nil {
		t.Errorf("reset: %v", err)
	}
	if left := ours(o); len(left) > 0 {
		t.Errorf("%d processes left", len(left))
		for _, pid := range left {
			if err := kill(context.Background(), pid); err != nil {
				t.Error(err)
			}
		}
	}
	if removed, err := Reset(context.Background(), o); err != nil || len(removed) > 0 {
		t.Errorf("second reset: got %v, %v, want nothing to remove", removed, err)
	}
}

// ours are the processes that run a program of the directory.
func ours(o Options) (pids []int) {
	for _, pid := range processes() {
		if exe, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe")); err == nil && within(strings.TrimSuffix(exe, " (deleted)"), o.binDir()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestResetTakesDirectoriesThatNoRuntimeCouldRunIn(t *testing.T) {
	dir := t.TempDir()
	o := Options{DataDir: filepath.Join(dir, "data"), RunDir: filepath.Join(dir, strings.Repeat("x", 60)), CgroupParent: "/kemudi-test-none"}
	if _, err := o.withDefaults(); err == nil || !strings.Contains(err.Error(), "choose a shorter one (--run-dir)") {
		t.Errorf("a runtime there: got %v, want a refusal that says what to do", err)
	}
	if err := os.MkdirAll(filepath.Join(o.RunDir, "containerd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if removed, err := Reset(t.Context(), o); err != nil {
		t.Errorf("reset: got %q, %v", removed, err)
	}
	if o.Socket() == "" || o.NetNSDir() == "" {
		t.Errorf("got socket %q and directory of network namespaces %q, want both", o.Socket(), o.NetNSDir())
	}
}

// TestDirectoriesGoFromWhichOthersRemoveToo removes directories in the way that containerd does, which renames
// each first, while all of them are removed.
func TestDirectoriesGoFromWhichOthersRemoveToo(t *testing.T) {
	for range 100 {
		dir := filepath.Join(t.TempDir(), "task")
		for i := range 50 {
			if err := os.MkdirAll(filepath.Join(dir, fmt.Sprint(i), "rootfs"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var other sync.WaitGroup
		other.Go(func() {
			for i := range 50 {
				hidden := filepath.Join(dir, fmt.Sprint(".", i))
				if os.Rename(filepath.Join(dir, fmt.Sprint(i)), hidden) == nil {
					_ = os.RemoveAll(hidden) // who is first does not matter
				}
			}
		})
		err := removeAll(dir)
		other.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("it is still there: %v", err)
		}
	}
}
