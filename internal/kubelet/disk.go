package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
	"github.com/kemudi/kemudi/internal/kubelet/users"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
	"github.com/kemudi/kemudi/internal/task"
)

// disk is what the agent makes of pods on the machine beside their containers:
// files, mounts and cgroups.
type disk struct {
	volumes *volume.Manager
	cgroups cgroup.Tree
	users   *users.Ranges
}

func newDisk(a *Agent) (*disk, error) {
	pods := filepath.Join(a.o.RootDir, "pods")
	volumes, err := volume.NewManager(pods, a.o.Log)
	if err != nil {
		return nil, err
	}
	ranges, err := users.Open(pods, "/etc")
	if err != nil {
		return nil, err
	}
	return &disk{volumes: volumes, cgroups: cgroup.Open(cgroup.Top), users: ranges}, nil
}

// cleanUp removes all that the pod has on the machine, except sandboxes and logs.
type cleanUp struct {
	a   *Agent
	uid types.UID
}

func (w *cleanUp) do(context.Context) error {
	if w.a.disk == nil {
		return nil
	}
	return w.a.removeFromDisk(w.uid)
}

func (w *cleanUp) note(x *actor, err error) { x.o.CleanedUp = err == nil }

func (a *Agent) removeFromDisk(uid types.UID) error {
	if err := a.disk.volumes.CleanUp(uid); err != nil {
		return err
	}
	for _, qos := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		pod := &v1.Pod{}
		pod.UID = uid
		if err := a.disk.cgroups.Remove(a.facts.node.Cgroup(pod, qos)); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftovers removes what is on disk for pods that no actor knows (K4).
func (a *Agent) removeLeftovers() {
	if a.disk == nil {
		return
	}
	uids, err := a.disk.volumes.Pods()
	if err != nil {
		a.o.Log.Warn("look for leftovers of pods", "err", err)
	}
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		for _, name := range a.disk.cgroups.Children(a.facts.node.CgroupParent + "/kubepods" + class) {
			if uid, ok := strings.CutPrefix(name, "pod"); ok {
				uids = append(uids, types.UID(uid))
			}
		}
	}
	for _, uid := range uids {
		a.mu.Lock()
		_, known := a.mu.actors[uid]
		a.mu.Unlock()
		if known {
			continue
		}
		a.o.Log.Info("remove leftovers of pod", "uid", uid)
		if err := errors.Join(a.removeFromDisk(uid), a.forgetOnDisk(uid)); err != nil {
			a.o.Log.Warn("remove leftovers of pod", "uid", uid, "err", err)
		}
	}
}

// forgetOnDisk removes the last that is on disk of a pod: its logs, which are
// found by its UID, and the directory that says that there may be some.
func (a *Agent) forgetOnDisk(uid types.UID) error {
	if a.disk == nil {
		return nil
	}
	dirs, err := filepath.Glob(cri.PodLogDir(a.o.PodLogsDir, "*", "*", string(uid)))
	if err != nil {
		return fmt.Errorf("find logs of pod: %w", err)
	}
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("remove logs of pod: %w", err)
		}
	}
	if err := a.disk.users.Release(uid); err != nil {
		return err
	}
	return a.disk.volumes.Forget(uid)
}

// prepareSandbox makes what a sandbox needs on the machine.
func (a *Agent) prepareSandbox(pod *v1.Pod, node *cri.Node, config *runtimeapi.PodSandboxConfig) error {
	if a.disk == nil {
		return nil
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	path := config.GetLinux().GetCgroupParent()
	if path == "" {
		return nil
	}
	if err := a.disk.cgroups.Ensure(path, cri.PodCgroup(pod, node)); err != nil {
		return fmt.Errorf("make cgroup of pod: %w", err)
	}
	return a.weighClasses(node.CgroupParent)
}

// weighClasses gives the quality of service classes their shares of the CPU:
// burstable pods what they asked for together, best-effort ones what is left.
func (a *Agent) weighClasses(parent string) error {
	burstable := int64(0)
	a.mu.Lock()
	for _, c := range a.mu.allocations {
		if c.QOS == v1.PodQOSBurstable {
			cpu := c.Requests[v1.ResourceCPU]
			burstable += cpu.MilliValue()
		}
	}
	a.mu.Unlock()
	all := a.facts.node.Allocatable[v1.ResourceCPU]
	return errors.Join(
		a.disk.cgroups.Shares(parent+"/kubepods", cri.CPUShares(all.MilliValue())),
		a.disk.cgroups.Shares(parent+"/kubepods/burstable", cri.CPUShares(burstable)),
		a.disk.cgroups.Shares(parent+"/kubepods/besteffort", cri.CPUShares(0)),
	)
}

// maxMessage is how long a termination message may be; maxLogMessage is that of
// one taken from the log.
const (
	maxMessage      = 4096
	maxLogMessage   = 2048
	maxLogLines     = 80
	hostsPath       = "/etc/hosts"
	terminationName = "termination-log"
)

// terminationMessage reads a container's last words.
func (a *Agent) terminationMessage(ctx context.Context, s *runtimeapi.ContainerStatus) (string, bool) {
	if a.disk == nil {
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

// logOf is the path of a container's log; empty if there is none.
func (a *Agent) logOf(ctx context.Context, id string) string {
	if a.disk == nil {
		return ""
	}
	resp, err := a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ""
	}
	return resp.GetStatus().GetLogPath()
}

// removeLog removes the log of a removed container.
func (a *Agent) removeLog(path string) error {
	if path == "" || a.disk == nil {
		return nil
	}
	return logs.Remove(path)
}

// removePodLogs removes the logs of a pod that is gone.
func (a *Agent) removePodLogs(pod *v1.Pod) error {
	if a.disk == nil || pod.Name == "" || pod.Namespace == "" {
		return nil
	}
	if err := os.RemoveAll(cri.PodLogDir(a.o.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID))); err != nil {
		return fmt.Errorf("remove logs of pod: %w", err)
	}
	return nil
}

// terminationLog makes the file for the container's last words, and removes
// those of its long gone predecessors.
func (s *start) terminationLog() (string, error) {
	dir := filepath.Join(s.a.disk.volumes.PodDir(s.pod.UID), "containers", s.container.Name)
	if err := os.RemoveAll(filepath.Join(dir, strconv.Itoa(s.act.Attempt-2))); err != nil {
		return "", fmt.Errorf("remove old termination message: %w", err)
	}
	path := filepath.Join(dir, strconv.Itoa(s.act.Attempt), terminationName)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", fmt.Errorf("make termination message: %w", err)
	}
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return "", fmt.Errorf("make termination message: %w", err)
	}
	return path, os.Chmod(path, 0o666) // despite the umask
}

// hostsFile writes the pod's /etc/hosts.
func (s *start) hostsFile() (string, error) {
	node := s.a.nodeFacts()
	dir := s.a.disk.volumes.PodDir(s.pod.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", fmt.Errorf("make hosts file: %w", err)
	}
	path := filepath.Join(dir, "etc-hosts")
	if err := os.WriteFile(path, []byte(cri.HostsFile(s.pod, &node, s.podIPs)), 0o644); err != nil {
		return "", fmt.Errorf("make hosts file: %w", err)
	}
	return path, os.Chmod(path, 0o644) // despite the umask
}

// rotateLogs begins new logs for running containers whose logs are full.
func (a *Agent) rotateLogs(ctx context.Context) error {
	limits := logs.Limits{Size: a.o.Settings.LogMaxSize.Value(), Files: a.o.Settings.LogMaxFiles}
	for {
		if err := task.Sleep(ctx, a.pace); err != nil {
			return err
		}
		a.mu.Lock()
		paths := maps.Clone(a.mu.logs)
		a.mu.Unlock()
		for id, path := range paths {
			err := limits.Rotate(path, func() error {
				_, err := a.o.Runtime.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
				return err
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) && ctx.Err() == nil {
				a.o.Log.Warn("rotate container log", "path", path, "err", err)
			}
		}
	}
}

// noteLog has the log of a running container looked after, and no longer when
// it has ended.
func (a *Agent) noteLog(s *runtimeapi.ContainerStatus) {
	if a.disk == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.State == runtimeapi.ContainerState_CONTAINER_RUNNING && s.LogPath != "" {
		a.mu.logs[s.Id] = s.LogPath
	} else {
		delete(a.mu.logs, s.Id)
	}
}
