package worker

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWritesAHostsFileOnlyWhereThereIsNone and takes away only what it wrote.
func TestWritesAHostsFileOnlyWhereThereIsNone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	ensure := func(want string) {
		t.Helper()
		if err := ensureHosts(file); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	remove := func(want int) {
		t.Helper()
		if removed, err := removeHosts(file); err != nil || len(removed) != want {
			t.Errorf("removed %q, %v, want %d files", removed, err, want)
		}
	}
	remove(0)
	ensure(ourHosts)
	ensure(ourHosts)
	remove(1)
	remove(0)
	theirs := ourHosts + "192.0.2.1 me\n"
	if err := os.WriteFile(file, []byte(theirs), 0o644); err != nil {
		t.Fatal(err)
	}
	ensure(theirs)
	remove(0)
}
