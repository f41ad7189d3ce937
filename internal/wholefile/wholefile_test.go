package wholefile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// is fails unless a file has that content and mode, and is alone in its directory.
func is(t *testing.T, path, content string, mode fs.FileMode) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil || string(data) != content {
		t.Errorf("%s: got %q, %v, want %q", path, data, err, content)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != mode {
		t.Errorf("%s: got mode %v, %v, want %v", path, info.Mode(), err, mode)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("beside %s: got %v, %v, want nothing", path, all, err)
	}
}

func TestFilesAreReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "made", "file")
	if err := Write(path, []byte("a"), 0o644); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its directory: got %v, want %v", err, fs.ErrNotExist)
	}
	if err := Private(path, []byte("b")); err != nil {
		t.Fatal(err)
	}
	is(t, path, "b", 0o600)
	if err := Write(path, []byte("c"), 0o755); err != nil {
		t.Fatal(err)
	}
	is(t, path, "c", 0o755)
	cut := errors.New("cut off")
	if err := Fill(path, func(w io.Writer) error { return errors.Join(content([]byte("half"))(w), cut) }); !errors.Is(err, cut) {
		t.Errorf("of what is cut off: got %v, want %v", err, cut)
	}
	is(t, path, "c", 0o755)
	if err := Replace(path, []byte("d"), 0o600); err != nil {
		t.Fatal(err)
	}
	is(t, path, "d", 0o755)
	if err := errors.Join(os.Remove(path), Replace(path, []byte("e"), 0o640)); err != nil {
		t.Fatal(err)
	}
	is(t, path, "e", 0o640)
	if err := Fill(path, content([]byte("f"))); err != nil {
		t.Fatal(err)
	}
	is(t, path, "f", 0o600)
}

func TestWhatCannotBeWrittenLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("a"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v, want what was there alone", all, err)
	}
}
