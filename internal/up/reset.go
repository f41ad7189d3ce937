package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remover undoes one part's changes to this machine and says what it removed.
// It must work after a crash, and do nothing the second time.
type Remover struct {
	Part   string
	Remove func(ctx context.Context) (removed []string, err error)
}

// Reset stops the server and removes every trace of the cluster: what the
// removers know of, the directories, and the entry in the person's kubeconfig. It
// prints what it removes, and runs the removers once more to verify that nothing
// is left.
func Reset(ctx context.Context, o Options, removers []Remover) error {
	machine := machineServices()
	service, err := machine.remove(ctx, o)
	if err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	stopped, err := Down(ctx, o.DataDir, o.RunDir)
	if err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	if stopped {
		fmt.Fprintln(o.Out, "stopped the server")
	}
	n, err := removeAll(ctx, o.Out, removers)
	if service {
		fmt.Fprintln(o.Out, "removed", machine.file())
		n++
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: part of the cluster is removed, kemudi reset removes the rest (%w)", context.Cause(ctx))
	}
	if err != nil {
		return err
	}
	for _, dir := range []string{o.RunDir, o.DataDir} {
		if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
			continue
		}
		removed, err := RemoveDir(dir)
		if err != nil {
			return fmt.Errorf("remove %s: %w", dir, err)
		}
		if removed {
			fmt.Fprintln(o.Out, "removed", dir)
			n++
		}
	}
	if o.Kubeconfig != "" {
		gone, err := forgetKubeconfig(o.Kubeconfig)
		if err != nil {
			return err
		}
		if gone {
			fmt.Fprintf(o.Out, "removed context %q from %s\n", contextName, o.Kubeconfig)
			n++
		}
	}
	if left, err := removeAll(ctx, io.Discard, removers); err != nil || left > 0 {
		return errors.Join(fmt.Errorf("%d things were still there after the reset; run it again", left), err)
	}
	fmt.Fprintf(o.Out, "nothing is left (%d removed)\n", n)
	return nil
}

// removeAll runs every remover, even if one fails.
func removeAll(ctx context.Context, out io.Writer, removers []Remover) (n int, _ error) {
	var errs []error
	for _, r := range removers {
		removed, err := r.Remove(ctx)
		for _, what := range removed {
			fmt.Fprintln(out, "removed", what)
		}
		n += len(removed)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Part, err))
		}
	}
	return n, errors.Join(errs...)
}

// RemoveDir removes a directory, or what is in it where a link leads to it or a
// file system is mounted there or further down: that is the administrator's. It says whether there
// was something.
func RemoveDir(dir string) (removed bool, _ error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	mounted := false
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		err := os.RemoveAll(path)
		if !errors.Is(err, unix.EBUSY) {
			removed = true
		} else {
			mounted = true
			var some bool
			some, err = RemoveDir(path)
			removed = removed || some
		}
		if err != nil {
			return false, err
		}
	}
	if link, err := os.Lstat(dir); mounted || err == nil && link.Mode()&os.ModeSymlink != 0 {
		return removed, nil
	}
	err = os.Remove(dir)
	if errors.Is(err, unix.EBUSY) {
		return removed, nil
	}
	return true, err
}
