package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
)

// emptyDir makes a directory that lives as long as the pod: writable for all,
// or by the pod's group.
func (m *Manager) emptyDir(pod *v1.Pod, v *v1.Volume) error {
	dir := m.Path(pod, v)
	group := FSGroup(pod)
	switch medium := v.EmptyDir.Medium; {
	case medium == v1.StorageMediumDefault:
		return makeShared(dir, group)
	case medium == v1.StorageMediumMemory:
		return ensureTmpfs(dir, m.memorySize(pod, v.EmptyDir), group)
	case strings.HasPrefix(string(medium), string(v1.StorageMediumHugePages)):
		size := strings.TrimPrefix(strings.TrimPrefix(string(medium), string(v1.StorageMediumHugePages)), "-")
		if size == "" {
			size = hugePageSize(pod)
		}
		if size == "" {
			return fmt.Errorf("medium HugePages needs a container with a limit of huge pages of one size")
		}
		return ensureMount(dir, "hugetlbfs", sharedOptions(group)+",pagesize="+strings.TrimSuffix(size, "i"))
	default:
		return fmt.Errorf("unknown storage medium %q", medium)
	}
}

// makeShared makes a directory that all may write to, or that belongs to the
// pod's group. One that exists is left alone: what its mode is now was the pod's
// own doing.
func makeShared(dir string, group *int64) error {
	if _, err := os.Lstat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	fresh, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return fmt.Errorf("make volume directory: %w", err)
	}
	err = os.Chmod(fresh, 0o777) // despite the umask
	if err == nil && group != nil {
		err = shareWith(fresh, *group)
	}
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("make volume directory: %w", err), os.Remove(fresh))
	}
	return nil
}

// memorySize is how large a volume in memory may grow: no more than its limit, that of
// the pod's memory, or what the node has for all pods.
func (m *Manager) memorySize(pod *v1.Pod, e *v1.EmptyDirVolumeSource) int64 {
	size := m.node.Allocatable.Memory().Value()
	own := []int64{cri.PodCgroup(pod, m.node).MemoryLimitInBytes}
	if e.SizeLimit != nil {
		own = append(own, e.SizeLimit.Value())
	}
	for _, limit := range own {
		if limit > 0 && (size == 0 || limit < size) {
			size = limit
		}
	}
	return size
}

// hugePageSize is the one size of huge pages that the pod asks for, as a whole or for its containers, or empty.
func hugePageSize(pod *v1.Pod) string {
	found := ""
	for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
		size, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		switch {
		case !ok || q.IsZero():
		case found != "":
			return ""
		default:
			found = size
		}
	}
	return found
}
