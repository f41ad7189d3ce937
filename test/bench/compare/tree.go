package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A tree is one of the two sources that are compared.
type tree struct{ dir string }

// command prepares a command in the tree that ends when ctx does.
func (t tree) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = t.dir
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it may have to clean up
	cmd.WaitDelay = 2 * time.Minute
	return cmd
}

// do runs a command in the tree and returns what it prints.
func (t tree) do(ctx context.Context, name string, args ...string) (string, error) {
	out, err := t.command(ctx, name, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s%s", err, out, exit.Stderr)
		}
		return "", fmt.Errorf("%s: %w", strings.Join(append([]string{name}, args[:min(len(args), 3)]...), " "), err)
	}
	return string(out), nil
}

// embedded is what a build needs that is not in the repository.
const embedded = "internal/container/embedded"

// checkOut makes a tree of a commit below dir, and says which that is.
func checkOut(ctx context.Context, dir, name string) (t tree, commit string, err error) {
	here := tree{dir: "."}
	commit, err = here.do(ctx, "git", "-c", "safe.directory=*", "rev-parse", "--short", "--verify", name+"^{commit}")
	if err != nil {
		return t, "", err
	}
	commit = strings.TrimSpace(commit)
	t.dir = filepath.Join(dir, "base")
	if _, err = here.do(ctx, "git", "-c", "safe.directory=*", "worktree", "add", "--quiet", "--detach", t.dir, commit); err != nil {
		return t, "", err
	}
	if err := t.embed(); err != nil {
		return t, "", errors.Join(err, t.remove(ctx))
	}
	return t, commit, nil
}

// embed gives the tree the built programs that the present one has.
func (t tree) embed() error {
	entries, err := os.ReadDir(embedded)
	if err != nil {
		return fmt.Errorf("find what is built: %w; run make runtime", err)
	}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(embedded, e.Name()))
		if err != nil {
			return fmt.Errorf("copy what is built: %w", err)
		}
		f, err := os.OpenFile(filepath.Join(t.dir, embedded, e.Name()), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if errors.Is(err, fs.ErrExist) {
			continue // the commit has its own
		}
		if err == nil {
			_, err = f.Write(data)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("copy what is built: %w", err)
		}
	}
	return nil
}

// remove takes the tree away, also when ctx has ended.
func (t tree) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_, err := tree{dir: "."}.do(ctx, "git", "-c", "safe.directory=*", "worktree", "remove", "--force", t.dir)
	return err
}
