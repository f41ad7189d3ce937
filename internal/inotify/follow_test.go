package inotify

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func TestFileIsLookedAtWhenItChanges(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	ctx, cancel := context.WithTimeout(t.Context(), lookAgain/2)
	defer cancel()
	var seen []string
	err := Follow(ctx, file, func(context.Context) bool {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != string(text) {
			if seen = append(seen, string(text)); len(seen) < 3 {
				write(string(text) + "+")
			}
		}
		return len(seen) == 3
	})
	if err != nil || ctx.Err() != nil || len(seen) != 3 || seen[2] != "1++" {
		t.Errorf("got %q, %v, %v, want each text that the file had", seen, err, ctx.Err())
	}
	if err := Follow(t.Context(), filepath.Join(dir, "none", "config.yaml"), nil); err == nil {
		t.Error("a directory that there is not: got no error, want one")
	}
}

func TestFileIsLookedAtNowAndThenWithoutCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*lookAgain+time.Second)
		defer cancel()
		looks := 0
		follow(ctx, nil, func(context.Context) bool { looks++; return false })
		if looks != 4 {
			t.Errorf("got %d looks in a little more than three times %v, want 4", looks, lookAgain)
		}
	})
}
