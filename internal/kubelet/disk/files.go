package disk

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
)

// maxMessage is how long a termination message may be; maxLogMessage is that of
// one taken from the log.
const (
	maxMessage      = 4096
	maxLogMessage   = 2048
	maxLogLines     = 80
	terminationName = "termination-log"
)

// TerminationMessage reads a container's last words.
func (d *Disk) TerminationMessage(ctx context.Context, s *runtimeapi.ContainerStatus) (string, bool) {
	if d == nil {
		return "", false
	}
	path, fallback := cri.TerminationMessage(s)
	text := ""
	for _, m := range s.Mounts {
		if m.ContainerPath == path && path != "" {
			text = readEnd(m.HostPath, maxMessage)
		}
	}
	if text == "" && fallback && s.ExitCode != 0 && s.LogPath != "" {
		if last, err := logs.Last(ctx, s.LogPath, maxLogLines, maxLogMessage); err == nil {
			text = last
		}
	}
	switch {
	case text == "":
		return "", false
	case s.Message != "":
		return s.Message + ": " + text, true
	}
	return text, true
}

// readEnd returns the last bytes of a file; of what is no file, as a volume may
// lie there, nothing.
func readEnd(path string, limit int64) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-limit, 0), limit))
	if err != nil {
		return ""
	}
	return string(data)
}

// RemoveLog removes the log of a removed container.
func (d *Disk) RemoveLog(path string) error {
	if path == "" || d == nil {
		return nil
	}
	if err := RemoveLogLinks(d.o.LogLinksDir, path); err != nil {
		return err
	}
	return logs.Remove(path)
}

// RemovePodLogs removes the logs of a pod that is gone.
func (d *Disk) RemovePodLogs(pod *v1.Pod) error {
	if d == nil || pod.Name == "" || pod.Namespace == "" {
		return nil
	}
	return d.removePodLogs(cri.PodLogDir(d.o.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID)))
}

// TerminationLog makes the file for the last words of a container of a pod, which is
// its number attempt, and removes those of its long gone predecessors.
func (d *Disk) TerminationLog(pod types.UID, container string, attempt int) (string, error) {
	dir := filepath.Join(d.Volumes.PodDir(pod), "containers", container)
	if err := os.RemoveAll(filepath.Join(dir, strconv.Itoa(attempt-2))); err != nil {
		return "", fmt.Errorf("remove old termination message: %w", err)
	}
	path := filepath.Join(dir, strconv.Itoa(attempt), terminationName)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make termination message: %w", err)
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return "", fmt.Errorf("make termination message: %w", err)
	}
	return path, os.Chmod(path, 0o666) // despite the umask
}

// HostsFile writes the pod's /etc/hosts.
func (d *Disk) HostsFile(pod types.UID, text string) (string, error) {
	dir := d.Volumes.PodDir(pod)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make hosts file: %w", err)
	}
	path := filepath.Join(dir, "etc-hosts")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return "", fmt.Errorf("make hosts file: %w", err)
	}
	return path, os.Chmod(path, 0o644) // despite the umask
}

// Note has the log of a running container looked after, and no longer when it has
// ended.
func (d *Disk) Note(s *runtimeapi.ContainerStatus) {
	switch {
	case d == nil:
	case s.State == runtimeapi.ContainerState_CONTAINER_RUNNING && s.LogPath != "":
		d.Logs.Follow(s.Id, s.LogPath)
	default:
		d.Logs.Forget(s.Id)
	}
}
