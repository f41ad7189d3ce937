package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kemudi/kemudi/internal/kubelet"
)

func TestResetFindsRootDirectoriesThatAreElsewhere(t *testing.T) {
	data, first, second := t.TempDir(), filepath.Join(t.TempDir(), "root"), t.TempDir()
	for _, root := range []string{first, filepath.Join(data, "kubelet"), second, first} {
		if err := noteRoot(data, root); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(root, "pods/uid/volumes"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(second, "config.json")
	if err := os.WriteFile(own, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []string{"directory " + first + "/pods", "directory " + first, "directory " + second + "/pods"}
	limit := filepath.Join(t.TempDir(), "cpu.shares")
	note := []byte(`{"` + limit + `": "1024", "/none/cpu.shares": "1"}`)
	if err := errors.Join(os.WriteFile(limit, []byte("512"), 0o600), os.WriteFile(kubelet.CgroupNote(first), note, 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := giveBackCgroups(data); err != nil || !slices.Equal(got, []string{"limit " + limit}) {
		t.Errorf("cgroups of others: got %q, %v", got, err)
	}
	if got, err := os.ReadFile(limit); err != nil || string(got) != "1024" {
		t.Errorf("limit of a cgroup of others: got %s, %v, want what was there before", got, err)
	}
	if got, err := removeRoots(data); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if _, err := os.Stat(own); err != nil {
		t.Errorf("the administrator's file: %v", err)
	}
	if _, err := os.Stat(first); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: got %v, want that it is gone", first, err)
	}
	if got, err := removeRoots(data); err != nil || len(got) > 0 {
		t.Errorf("again: got %q, %v", got, err)
	}
}

func TestRootDirectoryIsFoundWhereChartsLook(t *testing.T) {
	data, other := t.TempDir(), t.TempDir()
	at, root := filepath.Join(t.TempDir(), "lib", "kubelet"), DefaultRoot(data)
	link := func(root, want string) {
		t.Helper()
		if got, err := linkRoot(at, root); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", root, got, err, want)
		}
	}
	if err := errors.Join(os.MkdirAll(root, 0o755), os.MkdirAll(DefaultRoot(other), 0o755)); err != nil {
		t.Fatal(err)
	}
	link(root, at)
	link(root, at) // again, as after a restart
	link(DefaultRoot(other), DefaultRoot(other))
	if got, err := unlinkRoot(other, at); err != nil || len(got) > 0 {
		t.Errorf("another's link: got %q, %v, want that it stays", got, err)
	}
	if got, err := unlinkRoot(data, at); err != nil || !slices.Equal(got, []string{"link " + at}) {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := unlinkRoot(data, at); err != nil || len(got) > 0 {
		t.Errorf("again: got %q, %v", got, err)
	}
	if err := os.Symlink(filepath.Join(other, "gone"), at); err != nil {
		t.Fatal(err)
	}
	link(root, at) // what led to nothing
	if err := errors.Join(os.Remove(at), os.Mkdir(at, 0o755)); err != nil {
		t.Fatal(err)
	}
	link(root, root)
	link(at, at) // --root-dir
	if got, err := unlinkRoot(data, at); err != nil || len(got) > 0 {
		t.Errorf("a directory of others: got %q, %v, want that it stays", got, err)
	}
}
