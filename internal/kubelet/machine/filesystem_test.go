package machine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFilesBelowCountWhatIsOnDiskOnce(t *testing.T) {
	dir := t.TempDir()
	empty := FilesBelow(dir)
	write := func(name string, size int) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a", 1<<20)
	write("sub/b", 1<<20)
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "sub", "same")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	if got := FilesBelow(dir); got.Bytes-empty.Bytes < 2<<20 || got.Bytes-empty.Bytes > 2<<20+64<<10 {
		t.Errorf("got %d bytes, want 2 MiB and some directories", got.Bytes-empty.Bytes)
	} else if got.Inodes-empty.Inodes != 5 { // a, sub, sub/b, root, sparse
		t.Errorf("got %d inodes more, want 5", got.Inodes-empty.Inodes)
	}
	if got := FilesBelow(filepath.Join(dir, "none")); got != (Files{}) {
		t.Errorf("of nothing: got %+v", got)
	}
}
