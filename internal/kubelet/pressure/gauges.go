package pressure

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
)

// fsInfoTimeout bounds the question where images lie.
const fsInfoTimeout = 2 * time.Minute

// Gauges show what is left and used of memory, disk and processes.
type Gauges interface {
	// Node is what the node has left.
	Node(context.Context) (evict.Readings, error)
	// Pod is what a pod holds on disk.
	Pod(context.Context, *v1.Pod) (evict.Storage, error)
	// Processes is how many processes and threads a pod has.
	Processes(*v1.Pod) (int64, error)
}

// Machine are the gauges of a machine.
type Machine struct {
	Root   string // directory of the file system that pods write to
	Images runtimeapi.ImageServiceClient
	Runner *container.Runner

	PodsCgroup string // of all pods
	PodsMemory int64  // bytes that it is held to; 0: those of the machine
}

var _ Gauges = Machine{}

// Processes asks the kernel how many a pod has.
func (m Machine) Processes(pod *v1.Pod) (int64, error) { return m.Runner.Processes(pod) }

// Node looks at memory, processes and file systems.
func (m Machine) Node(ctx context.Context) (evict.Readings, error) {
	out := evict.Readings{}
	total, err := machine.TotalMemory()
	if err != nil {
		return nil, err
	}
	used, err := machine.Used()
	if err != nil {
		return nil, err
	}
	out[evict.MemoryAvailable] = evict.Reading{Available: total - int64(used.Memory), Capacity: total}
	if m.PodsMemory > 0 {
		working, _ := cgroup.Open(cgroup.Top).Read(m.PodsCgroup).WorkingSet()
		out[evict.PodsMemory] = evict.Reading{Available: m.PodsMemory - int64(working), Capacity: m.PodsMemory}
	}
	processes, most, err := machine.Processes()
	if err != nil {
		return out, err
	}
	out[evict.PIDAvailable] = evict.Reading{Available: most - processes, Capacity: most}
	if err := readFileSystem(m.Root, out, evict.NodeFSAvailable, evict.NodeFSInodes); err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, fsInfoTimeout)
	defer cancel()
	images, err := m.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return out, fmt.Errorf("ask where images lie: %w", err)
	}
	for _, fs := range images.ImageFilesystems {
		if err := readFileSystem(fs.GetFsId().GetMountpoint(), out, evict.ImageFSAvailable, evict.ImageFSInodes); err != nil {
			return out, err
		}
	}
	return out, nil
}

// readFileSystem notes what the file system at path has left. Some do not count
// inodes.
func readFileSystem(path string, out evict.Readings, space, inodes evict.Signal) error {
	fs, err := machine.FileSystemOf(path)
	if err != nil {
		return err
	}
	out[space] = evict.Reading{Available: fs.Available, Capacity: fs.Capacity}
	if fs.Inodes > 0 {
		out[inodes] = evict.Reading{Available: fs.InodesFree, Capacity: fs.Inodes}
	}
	return nil
}

// Pod measures what the pod holds on disk: its volumes and logs now, its
// writable layers as the runtime has last seen them.
func (m Machine) Pod(ctx context.Context, pod *v1.Pod) (evict.Storage, error) {
	out := m.Runner.Disk.Usage(pod)
	stats, err := m.Runner.Stats(ctx, pod)
	if err != nil {
		return out, err
	}
	for _, s := range stats {
		out.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
		out.Inodes += int64(s.GetWritableLayer().GetInodesUsed().GetValue())
	}
	return out, nil
}
