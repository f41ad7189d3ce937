package logs

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits are how large a log grows, in bytes, before a new one is begun, and how
// many files of a log are kept in all, at least 2.
type Limits struct {
	Size  int64
	Files int
}

// rotatedFormat is what is added to the name of a full log.
const rotatedFormat = "20060102-150405"

const (
	gzipSuffix = ".gz"
	tempSuffix = ".tmp"
)

// Rotate begins a new log in the place of the one at path if that is full:
// reopen makes the runtime write to path anew. Older ones are compressed, the
// oldest removed.
func (l Limits) Rotate(path string, reopen func() error) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at log: %w", err)
	}
	if info.Size() < l.Size {
		return nil
	}
	old, err := rotated(path)
	if err != nil {
		return err
	}
	// This one and the new one come on top of those that stay.
	for len(old) > l.Files-2 {
		if err := os.Remove(old[0]); err != nil {
			return fmt.Errorf("remove old log: %w", err)
		}
		old = old[1:]
	}
	for _, name := range old {
		if !strings.HasSuffix(name, gzipSuffix) {
			if err := compress(name); err != nil {
				return err
			}
		}
	}
	full := path + "." + time.Now().UTC().Format(rotatedFormat)
	if err := os.Rename(path, full); err != nil {
		return fmt.Errorf("rotate log: %w", err)
	}
	if err := reopen(); err != nil {
		return errors.Join(fmt.Errorf("reopen log: %w", err), os.Rename(full, path))
	}
	return nil
}

// rotated lists the full logs of path, the oldest first, and removes what a
// killed process left half done.
func rotated(path string) ([]string, error) {
	names, err := filepath.Glob(path + ".*")
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var out []string
	for _, name := range names {
		if strings.HasSuffix(name, tempSuffix) {
			if err := os.Remove(name); err != nil {
				return nil, fmt.Errorf("remove unfinished log: %w", err)
			}
			continue
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out, nil
}

// Remove removes a log and all that was rotated from it.
func Remove(path string) error {
	names, err := filepath.Glob(path + "*")
	if err != nil {
		return fmt.Errorf("list logs: %w", err)
	}
	var errs []error
	for _, name := range names {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove log: %w", err))
		}
	}
	return errors.Join(errs...)
}

// compress replaces a file by its compressed form, all or nothing.
func compress(name string) (err error) {
	in, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	defer in.Close()
	temp := name + tempSuffix
	out, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	z := gzip.NewWriter(out)
	_, err = io.Copy(z, in)
	err = errors.Join(err, z.Close(), out.Close())
	if err == nil {
		err = os.Rename(temp, name+gzipSuffix)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compress log: %w", err), os.Remove(temp))
	}
	if err := os.Remove(name); err != nil {
		return fmt.Errorf("compress log: %w", err)
	}
	return nil
}
