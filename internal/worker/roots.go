package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// The files of pods are in the node agent's root directory. One that is not in the
// data directory is noted there, so that a reset finds it, and is the
// administrator's: a reset removes from it only what belongs to pods.

// DefaultRoot is the root directory in the data directory.
func DefaultRoot(dataDir string) string { return filepath.Join(dataDir, "kubelet") }

func rootsNote(dataDir string) string { return filepath.Join(dataDir, "root-dirs") }

// noteRoot remembers a root directory, beside those of earlier starts.
func noteRoot(dataDir, root string) error {
	roots, err := rootsOf(dataDir)
	if err != nil || slices.Contains(roots, root) {
		return err
	}
	return wholefile.Private(rootsNote(dataDir), []byte(strings.Join(append(roots[1:], root), "\n")+"\n"))
}

// rootsOf are all root directories that a server with this data directory has had,
// the one in the data directory first.
func rootsOf(dataDir string) ([]string, error) {
	roots := []string{DefaultRoot(dataDir)}
	note, err := os.ReadFile(rootsNote(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return roots, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find root directories: %w", err)
	}
	for line := range strings.Lines(string(note)) {
		roots = append(roots, strings.TrimSpace(line))
	}
	return roots, nil
}

// chartsDir is where charts of storage drivers and other plugins look for the root directory, unless they are told
// another.
const chartsDir = "/var/lib/kubelet"

// linkRoot has the root directory found where charts look for it, unless that place is somebody else's, and returns the name that
// plugins know it by.
func linkRoot(at, root string) (string, error) {
	if at == root {
		return at, nil
	}
	target, err := os.Readlink(at)
	switch {
	case err == nil && target == root:
		return at, nil
	case err == nil:
		if _, err := os.Stat(at); !errors.Is(err, os.ErrNotExist) {
			return root, nil
		}
		if err := os.Remove(at); err != nil { // it leads to what was removed
			return root, fmt.Errorf("link root directory: %w", err)
		}
	case !errors.Is(err, os.ErrNotExist): // it is no link
		return root, nil
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return root, fmt.Errorf("link root directory: %w", err)
	}
	if err := os.Symlink(root, at); errors.Is(err, os.ErrExist) { // another was faster
		return root, nil
	} else if err != nil {
		return root, fmt.Errorf("link root directory: %w", err)
	}
	return at, nil
}

// unlinkRoot removes the link to a root directory of ours.
func unlinkRoot(dataDir, at string) (removed []string, _ error) {
	roots, err := rootsOf(dataDir)
	if err != nil {
		return nil, err
	}
	if target, err := os.Readlink(at); err != nil || !slices.Contains(roots, target) {
		return nil, nil // there is none, or it is another's
	}
	if err := os.Remove(at); err != nil {
		return nil, fmt.Errorf("remove link to root directory: %w", err)
	}
	return []string{"link " + at}, nil
}

// podsOf is where a root directory has the files of pods, by their UIDs.
func podsOf(root string) string { return filepath.Join(root, "pods") }

// releaseVolumes takes away the mounts of pods, and the disks of networks that they had.
func releaseVolumes(ctx context.Context, dataDir string) (removed []string, _ error) {
	roots, err := rootsOf(dataDir)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		gone, err := volume.Reset(ctx, root)
		removed = append(removed, gone...)
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// giveBackCgroups lets cgroups of others have what they were held to before.
func giveBackCgroups(dataDir string) (removed []string, _ error) {
	roots, err := rootsOf(dataDir)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		files, err := cgroup.GiveBack(kubelet.CgroupNote(root))
		for _, file := range files {
			removed = append(removed, "limit "+file)
		}
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// RemovePods removes what pods had in all root directories, volumes that outlive them included,
// and their addresses. No pod runs any more.
func RemovePods(dataDir string) error {
	roots, err := rootsOf(dataDir)
	if err != nil {
		return err
	}
	dirs := []string{filepath.Join(dataDir, "podnet"), filepath.Join(dataDir, "cni")}
	for _, root := range roots {
		dirs = append(dirs, podsOf(root), filepath.Join(root, "volumes"))
		for _, name := range plugin.Dirs() {
			dirs = append(dirs, filepath.Join(root, name))
		}
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove files of pods: %w", err)
		}
	}
	return nil
}

// removeRoots removes the files of pods that are not in the data directory.
func removeRoots(dataDir string) (removed []string, _ error) {
	roots, err := rootsOf(dataDir)
	if err != nil {
		return nil, err
	}
	for _, root := range roots[1:] {
		for _, name := range append([]string{"pods"}, plugin.Dirs()...) {
			dir := filepath.Join(root, name)
			if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
				continue
			}
			if err := os.RemoveAll(dir); err != nil {
				return removed, fmt.Errorf("remove files of pods: %w", err)
			}
			removed = append(removed, "directory "+dir)
		}
		if os.Remove(root) == nil { // fails where there is more in it
			removed = append(removed, "directory "+root)
		}
	}
	return removed, nil
}
