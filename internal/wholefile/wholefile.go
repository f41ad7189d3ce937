// Package wholefile writes files of which nobody ever sees a half: whoever reads one finds what was there before or
// what is there now, also after a crash or a loss of power. When a function returns, the file and its name are on the disk.
//
// It knows nothing of what files hold. Trees of files that are exchanged as a whole, as volumes are, are not for it.
package wholefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Write writes a file with the given mode, whatever the umask is. Its directory must be there.
func Write(path string, data []byte, mode fs.FileMode) error {
	return write(path, content(data), func(f *os.File) error { return f.Chmod(mode) })
}

// Fill has fill write a file that only its owner may read, as long as it likes.
func Fill(path string, fill func(io.Writer) error) error {
	return write(path, fill, func(*os.File) error { return nil })
}

// content writes what is there already.
func content(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}

// Private writes a file that only its owner may read, and makes its directory, likewise, if that is missing.
func Private(path string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create directory of %s: %w", path, err)
	}
	return Write(path, data, 0o600)
}

// Replace writes a file with mode and owner of the one that is there; a new one has the given mode.
func Replace(path string, data []byte, mode fs.FileMode) error {
	was, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Write(path, data, mode)
	}
	if err != nil {
		return fmt.Errorf("replace file: %w", err)
	}
	return write(path, content(data), func(f *os.File) error {
		owner := was.Sys().(*syscall.Stat_t)
		return errors.Join(f.Chmod(was.Mode().Perm()), f.Chown(int(owner.Uid), int(owner.Gid)))
	})
}

// write writes a file beside the path, .NAME.*, has set give it mode and owner, and renames it. A process that is
// killed meanwhile leaves that file.
func write(path string, fill func(io.Writer) error, set func(*os.File) error) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("create temporary file for %s: %w", path, err)
	}
	defer os.Remove(f.Name()) // once renamed, there is nothing to remove
	if err = fill(f); err == nil {
		err = set(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// syncDir has the names in a directory on the disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
