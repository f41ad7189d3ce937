package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestResetRemovesTheDirectoryOfLogsThatItMade(t *testing.T) {
	data, logs := t.TempDir(), filepath.Join(t.TempDir(), "logs")
	if err := noteLogs(data, logs); err != nil {
		t.Fatal(err)
	}
	pod := filepath.Join(logs, "default_web_uid")
	if err := os.MkdirAll(filepath.Join(pod, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := removeLogs(data); err != nil || !slices.Equal(got, []string{"logs " + pod, "directory " + logs}) {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := os.Stat(logs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if got, err := removeLogs(data); err != nil || len(got) > 0 {
		t.Errorf("again: got %q, %v", got, err)
	}
}
