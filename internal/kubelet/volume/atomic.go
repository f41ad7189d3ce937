package volume

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Names within a written volume.
const (
	dataLink    = "..data"
	dataLinkNew = "..data_tmp"
	stateFormat = "..2006_01_02_15_04_05."
)

// replaceContent makes dir hold the files, all at once (V1): they are written to
// a new directory, to which a link is then moved.
func replaceContent(dir string, files map[string]file, group *int64) error {
	if err := makeShared(dir, group); err != nil {
		return err
	}
	current, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read volume state: %w", err)
	}
	if current != "" && sameContent(filepath.Join(dir, current), files, group) {
		return linkNames(dir, files) // a killed process may not have got here
	}
	state, err := os.MkdirTemp(dir, time.Now().UTC().Format(stateFormat))
	if err != nil {
		return fmt.Errorf("make volume state: %w", err)
	}
	if err := writeFiles(state, files, group); err != nil {
		return errors.Join(err, os.RemoveAll(state))
	}
	link := filepath.Join(dir, dataLinkNew)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace volume state: %w", err)
	}
	if err := os.Symlink(filepath.Base(state), link); err != nil {
		return fmt.Errorf("replace volume state: %w", err)
	}
	if err := os.Rename(link, filepath.Join(dir, dataLink)); err != nil {
		return fmt.Errorf("replace volume state: %w", err)
	}
	if err := linkNames(dir, files); err != nil {
		return err
	}
	return removeStates(dir, filepath.Base(state))
}

// firstPart is the name in the volume's directory under which a file is found.
func firstPart(name string) string {
	first, _, _ := strings.Cut(name, "/")
	return first
}

// writeFiles writes the files below dir with exact modes.
func writeFiles(dir string, files map[string]file, group *int64) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("write volume: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		path := filepath.Join(dir, name)
		if err := mkdirs(dir, filepath.Dir(name)); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, 0o600); err != nil {
			return fmt.Errorf("write volume: %w", err)
		}
		if err := os.Chmod(path, fs.FileMode(wantedMode(f, group))); err != nil {
			return fmt.Errorf("write volume: %w", err)
		}
		uid, gid := -1, -1
		if f.uid != nil {
			uid = int(*f.uid)
		}
		if group != nil {
			gid = int(*group)
		}
		if uid >= 0 || gid >= 0 {
			if err := os.Chown(path, uid, gid); err != nil {
				return fmt.Errorf("write volume: %w", err)
			}
		}
	}
	if group == nil {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return shareWith(path, *group)
	})
}

// wantedMode is the file's mode; the pod's group may read it.
func wantedMode(f file, group *int64) int32 {
	if group != nil {
		return f.mode | 0o440
	}
	return f.mode
}

// shareWith gives a directory to the pod's group, and what is made in it too.
func shareWith(dir string, group int64) error {
	if err := os.Chown(dir, -1, int(group)); err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	if err := os.Chmod(dir, info.Mode().Perm()|0o550|fs.ModeSetgid); err != nil {
		return fmt.Errorf("give volume to group: %w", err)
	}
	return nil
}

func mkdirs(dir, name string) error {
	for _, part := range strings.Split(name, "/") {
		if part == "." {
			continue
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("write volume: %w", err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			return fmt.Errorf("write volume: %w", err)
		}
	}
	return nil
}

// sameContent reports whether a state holds exactly the files.
func sameContent(state string, files map[string]file, group *int64) bool {
	found := 0
	err := filepath.WalkDir(state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(state, path)
		if err != nil {
			return err
		}
		f, ok := files[name]
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !ok || info.Mode().Perm() != fs.FileMode(wantedMode(f, group)) {
			return errDiffers
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(data, f.data) {
			return errDiffers
		}
		found++
		return nil
	})
	return err == nil && found == len(files)
}

var errDiffers = errors.New("content differs")

// linkNames makes the names that users see, and removes those of the past.
func linkNames(dir string, files map[string]file) error {
	want := map[string]bool{}
	for name := range files {
		want[firstPart(name)] = true
	}
	for name := range want {
		err := os.Symlink(filepath.Join(dataLink, name), filepath.Join(dir, name))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link volume content: %w", err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("link volume content: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") || want[e.Name()] || e.Type() != fs.ModeSymlink {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("link volume content: %w", err)
		}
	}
	return nil
}

// removeStates removes all states but one.
func removeStates(dir, keep string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("remove old volume states: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), "..") && e.Name() != keep {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return fmt.Errorf("remove old volume states: %w", err)
			}
		}
	}
	return nil
}
