package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
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
	return pki.WriteFile(rootsNote(dataDir), []byte(strings.Join(append(roots[1:], root), "\n")+"\n"))
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

// podsOf is where a root directory has the files of pods, by their UIDs.
func podsOf(root string) string { return filepath.Join(root, "pods") }

// unmountVolumes takes away the mounts of pods.
func unmountVolumes(dataDir string) (removed []string, _ error) {
	roots, err := rootsOf(dataDir)
	if err != nil {
		return nil, err
	}
	for _, root := range roots {
		gone, err := volume.Reset(root)
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
		pods := podsOf(root)
		if _, err := os.Lstat(pods); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(pods); err != nil {
			return removed, fmt.Errorf("remove files of pods: %w", err)
		}
		removed = append(removed, "directory "+pods)
		if os.Remove(root) == nil { // fails where there is more in it
			removed = append(removed, "directory "+root)
		}
	}
	return removed, nil
}
