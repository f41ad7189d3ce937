package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kemudi/kemudi/internal/kubelet"
	"github.com/kemudi/kemudi/internal/kubelet/disk"
	"github.com/kemudi/kemudi/internal/wholefile"
)

// A note in the data directory says where the logs of pods are. The default
// directory is shared with other programs, so a reset removes from it only the logs of
// this server's pods: the names of the pods' volume directories are their UIDs, which
// the names of the log directories contain. Any other directory is this server's alone.

// sharedLogsDir is where every container runtime of a machine puts pod logs.
const sharedLogsDir = kubelet.DefaultPodLogsDir

func logsNote(dataDir string) string { return filepath.Join(dataDir, "pod-logs-dir") }

// noteLogs remembers where the logs of pods are.
func noteLogs(dataDir, logsDir string) error {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	return wholefile.Private(logsNote(dataDir), []byte(logsDir+"\n"))
}

// removeLogs removes the logs of this server's pods, and the links to them in a directory.
func removeLogs(dataDir, links string) (removed []string, _ error) {
	// Of a machine that lost its power, links may be all that is left.
	if err := disk.RemoveLogLinks(links, dataDir); err != nil {
		return nil, err
	}
	note, err := os.ReadFile(logsNote(dataDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find pod logs: %w", err)
	}
	logs := strings.TrimSpace(string(note))
	if logs != sharedLogsDir {
		if err := disk.RemoveLogLinks(links, logs); err != nil {
			return nil, err
		}
	}
	roots, err := rootsOf(dataDir)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, root := range roots {
		pods, err := os.ReadDir(podsOf(root))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("find pods: %w", err)
		}
		for _, p := range pods {
			ours[p.Name()] = true
		}
	}
	dirs, err := os.ReadDir(logs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("find pod logs: %w", err)
	}
	for _, d := range dirs {
		if uid := d.Name()[strings.LastIndex(d.Name(), "_")+1:]; logs == sharedLogsDir && !ours[uid] {
			continue
		}
		if err := disk.RemoveLogLinks(links, filepath.Join(logs, d.Name())); err != nil {
			return removed, err
		}
		if err := os.RemoveAll(filepath.Join(logs, d.Name())); err != nil {
			return removed, fmt.Errorf("remove pod logs: %w", err)
		}
		removed = append(removed, "logs "+filepath.Join(logs, d.Name()))
	}
	for _, dir := range []string{logs, links} {
		if os.Remove(dir) == nil { // fails where others have logs there
			removed = append(removed, "directory "+dir)
		}
	}
	return removed, nil
}
