package container

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestProgramsAreUnpackedOnceAndRepaired(t *testing.T) {
	if !Built() {
		t.Skip("needs the embedded programs: run build/runtime/build.sh first")
	}
	dir := filepath.Join(t.TempDir(), "bin")
	list, err := readManifest()
	if err != nil {
		t.Fatal(err)
	}
	unpack := func(what string, want int) {
		t.Helper()
		if n, err := unpackPrograms(dir); err != nil || n != want {
			t.Errorf("%s: unpacked %d programs, %v; want %d", what, n, err, want)
		}
	}
	unpack("first", len(list))
	unpack("again", 0)
	pause := filepath.Join(dir, "pause")
	if err := os.Truncate(pause, 10); err != nil { // as a power cut may leave it
		t.Fatal(err)
	}
	unpack("one damaged", 1)
	data, err := os.ReadFile(pause)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2]++
	if err := os.WriteFile(pause, data, 0o755); err != nil {
		t.Fatal(err)
	}
	unpack("one changed", 1)
	if again, err := os.ReadFile(pause); err != nil || bytes.Equal(again, data) {
		t.Errorf("the changed program is still there: %v", err)
	}
	if err := os.Remove(pause); err != nil {
		t.Fatal(err)
	}
	unpack("one missing", 1)
	if err := os.Chmod(pause, 0o644); err != nil {
		t.Fatal(err)
	}
	unpack("one not executable", 1)
	if err := os.Remove(filepath.Join(dir, "manifest")); err != nil {
		t.Fatal(err)
	}
	unpack("record missing", len(list))
	if left, err := filepath.Glob(filepath.Join(dir, ".*")); err != nil || len(left) != 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
}

func TestOneOwnerPerDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "containerd/kemudi.lock")
	first, err := lockDir(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(t.Context(), path); !errors.Is(err, ErrInUse) {
		t.Errorf("second lock: got %v, want %v", err, ErrInUse)
	}
	first.Close()
	again, err := lockDir(t.Context(), path)
	if err != nil {
		t.Errorf("lock after the first owner: %v", err)
	}
	again.Close()
}

func TestPluginsAloneAreForOtherRuntimes(t *testing.T) {
	if !Built() {
		t.Skip("needs the embedded programs: run build/runtime/build.sh first")
	}
	dir := t.TempDir()
	if err := UnpackPlugins(Options{DataDir: dir}); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(names(dir+"/bin"), " "), "bridge host-local manifest"; got != want {
		t.Errorf("programs: got %s, want %s", got, want)
	}
}

// TestUnpackingOnAFullDiskIsMadeGoodLater has no room for the programs at first.
func TestUnpackingOnAFullDiskIsMadeGoodLater(t *testing.T) {
	if !Built() || os.Getuid() != 0 {
		t.Skip("needs the embedded programs, and root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=20m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if n, err := unpackPrograms(dir + "/bin"); err == nil || !strings.Contains(err.Error(), "no space left on device") {
		t.Errorf("on a full disk: got %d, %v", n, err)
	}
	if left, err := filepath.Glob(dir + "/bin/.*"); err != nil || len(left) != 0 {
		t.Errorf("temporary files left: %v, %v", left, err)
	}
	if err := unix.Mount("", dir, "tmpfs", unix.MS_REMOUNT, "size=60m"); err != nil {
		t.Fatal(err)
	}
	if _, err := unpackPrograms(dir + "/bin"); err != nil {
		t.Errorf("with room: %v", err)
	}
}
