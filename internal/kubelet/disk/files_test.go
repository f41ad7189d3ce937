package disk

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLastWordsAreTheEndOfARegularFile(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("a", 5000) + strings.Repeat("b", 4000)
	for name, text := range map[string]string{"short": "bye", "long": long} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"short": "bye", "long": long[len(long)-maxMessage:], "pipe": "", "none": "", ".": ""} {
		if got := readEnd(filepath.Join(dir, name), maxMessage); got != want {
			t.Errorf("%s: got %d bytes, want %d", name, len(got), len(want))
		}
	}
}
