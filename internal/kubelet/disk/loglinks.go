package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// Programs that gather the logs of a node look for them in one directory, where each container has a link to its
// log whose name says whose it is.

// longestName is what a file system has room for in the name of a file, in bytes.
const longestName = 255

// LinkLog makes the link to the log of a container that has started. One that writes no log has none.
func (d *Disk) LinkLog(pod *v1.Pod, container, id string, attempt int) error {
	if d == nil {
		return nil
	}
	log := filepath.Join(cri.PodLogDir(d.o.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID)), cri.LogPath(container, attempt))
	if _, err := os.Stat(log); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := os.MkdirAll(d.o.LogLinksDir, 0o755); err != nil {
		return fmt.Errorf("link log: %w", err)
	}
	const end = ".log"
	name := pod.Name + "_" + pod.Namespace + "_" + container + "-" + id
	name = name[:min(len(name), longestName-len(end))] + end
	if err := os.Symlink(log, filepath.Join(d.o.LogLinksDir, name)); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("link log: %w", err)
	}
	return nil
}

// RemoveLogLinks removes those links of a directory that lead to a path or to something below it.
func RemoveLogLinks(dir, path string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find links to logs: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		link := filepath.Join(dir, e.Name())
		target, err := os.Readlink(link)
		if err != nil || target != path && !strings.HasPrefix(target, path+"/") {
			continue // of somebody else, or gone meanwhile
		}
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove link to log: %w", err))
		}
	}
	return errors.Join(errs...)
}

// removePodLogs removes the directory of a pod's logs, and what leads there.
func (d *Disk) removePodLogs(dir string) error {
	if err := RemoveLogLinks(d.o.LogLinksDir, dir); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove logs of pod: %w", err)
	}
	return nil
}
