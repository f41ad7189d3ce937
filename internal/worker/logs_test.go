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
	links := filepath.Join(t.TempDir(), "containers")
	if err := os.Mkdir(links, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"ours.log": filepath.Join(pod, "c", "0.log"), "lost.log": filepath.Join(logs, "default_lost_uid2", "c", "0.log"),
		"machine.log": filepath.Join(data, "machines", "m", "pod-logs", "default_web_uid3", "c", "0.log"), "other.log": filepath.Join(logs+"2", "default_web_uid4", "c", "0.log"),
	} {
		if err := os.Symlink(target, filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := removeLogs(data, links); err != nil || !slices.Equal(got, []string{"logs " + pod, "directory " + logs}) {
		t.Errorf("got %q, %v", got, err)
	}
	if left, err := os.ReadDir(links); err != nil || len(left) != 1 || left[0].Name() != "other.log" {
		t.Errorf("got links %v, %v, want the other's alone", left, err)
	}
	if _, err := os.Stat(logs); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
	if err := os.Remove(filepath.Join(links, "other.log")); err != nil {
		t.Fatal(err)
	}
	if got, err := removeLogs(data, links); err != nil || !slices.Equal(got, []string{"directory " + links}) {
		t.Errorf("with links of nobody: got %q, %v", got, err)
	}
	if got, err := removeLogs(data, links); err != nil || len(got) > 0 {
		t.Errorf("again: got %q, %v", got, err)
	}
}
