package container

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
