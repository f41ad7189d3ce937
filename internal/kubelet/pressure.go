package kubelet

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/task"
)

const (
	// pressureInterval is how often the node is looked at: neither a file system
	// nor, everywhere, the kernel tells that little is left.
	pressureInterval = 10 * time.Second
	// evictionWait is how long the next pod to go waits for the one before.
	evictionWait = 30 * time.Second
	// fsInfoTimeout bounds the question where images lie.
	fsInfoTimeout = 2 * time.Minute
)

// gauges show what is left and used of memory and disk.
type gauges interface {
	// Node is what the node has left.
	Node(context.Context) (evict.Readings, error)
	// Pod is what a pod holds on disk.
	Pod(context.Context, *v1.Pod) (evict.Storage, error)
}

// watchPressure keeps the node from running out of memory and disk: it tells the
// API when little is left, and lets pods go, one after another, until there is
// more again.
func (a *Agent) watchPressure(ctx context.Context) error {
	select {
	case <-a.running:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	m := &evict.Monitor{Thresholds: a.o.Settings.Eviction, Transition: a.o.Settings.Transition}
	for {
		evicted := false
		if starved := a.lookAtNode(ctx, m); len(starved) > 0 {
			evicted = a.relieve(ctx, m, starved[0])
		}
		if evicted { // look again at once: is it enough?
			continue
		}
		if err := task.Sleep(ctx, pressureInterval); err != nil {
			return err
		}
	}
}

// lookAtNode reads the gauges and notes what pressure they show.
func (a *Agent) lookAtNode(ctx context.Context, m *evict.Monitor) []evict.Starved {
	readings, err := a.gauges.Node(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.o.Log.Warn("look at what the node has left", "err", err)
		}
		if readings == nil {
			return nil
		}
	}
	pressure, starved := m.Observe(readings, time.Now())
	a.node.SetPressure(pressure)
	return starved
}

// relieve makes room: first by what nobody uses, then by ending a pod. It reports
// whether a pod has gone.
func (a *Agent) relieve(ctx context.Context, m *evict.Monitor, s evict.Starved) bool {
	if node, ok := a.node.Seen(); ok {
		a.o.Events.Event(node, v1.EventTypeWarning, "EvictionThresholdMet", "Attempting to reclaim "+s.Signal.Resource())
	}
	if s.Signal != evict.MemoryAvailable {
		if err := a.collector.RemoveUnused(ctx); err != nil {
			a.o.Log.Warn("remove unused images", "err", err)
		}
		left := a.lookAtNode(ctx, m)
		if len(left) == 0 {
			return false
		}
		s = left[0]
	}
	users, err := a.users(ctx, s.Signal)
	if err != nil {
		a.o.Log.Warn("look at what pods use", "err", err)
		return false
	}
	u := evict.Choose(s.Signal, users)
	if u == nil {
		a.o.Log.Warn("node is low on a resource, and no pod can be evicted", "resource", s.Signal.Resource())
		return false
	}
	return a.evictPod(ctx, u.Pod.UID, u.Message(s))
}

// evictPod ends a pod and waits until it has ended, for a while.
func (a *Agent) evictPod(ctx context.Context, uid types.UID, message string) bool {
	left := a.pods.Evict(uid, message)
	if left == nil {
		return false
	}
	select {
	case <-left:
		return true
	case <-time.After(evictionWait):
	case <-ctx.Done():
	}
	return false
}

// users are the pods that are not finished, with what they use of a resource.
func (a *Agent) users(ctx context.Context, s evict.Signal) ([]evict.User, error) {
	resp, err := a.o.Runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	if err != nil {
		return nil, fmt.Errorf("ask what containers use: %w", err)
	}
	memory := map[string]map[string]int64{}
	for _, st := range resp.Stats {
		uid := st.GetAttributes().GetLabels()[cri.LabelPodUID]
		if memory[uid] == nil {
			memory[uid] = map[string]int64{}
		}
		memory[uid][st.GetAttributes().GetMetadata().GetName()] = int64(st.GetMemory().GetWorkingSetBytes().GetValue())
	}
	var out []evict.User
	for _, pod := range a.pods.Pods() {
		if core.PodTerminal(pod) {
			continue
		}
		u := evict.User{Pod: pod, Used: memory[string(pod.UID)]}
		if s != evict.MemoryAvailable {
			held, err := a.gauges.Pod(ctx, pod)
			if err != nil {
				return nil, err
			}
			u.Used = held.Containers
			u.Other = held.Total(pod) - evict.User{Used: held.Containers}.Total()
		}
		out = append(out, u)
	}
	return out, nil
}

// machineGauges are those of the machine.
type machineGauges struct {
	root   string // directory of the file system that pods write to
	images runtimeapi.ImageServiceClient
	runner *container.Runner
}

var _ gauges = machineGauges{}

// Node looks at memory and file systems.
func (g machineGauges) Node(ctx context.Context) (evict.Readings, error) {
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
	if err := readFileSystem(g.root, out, evict.NodeFSAvailable, evict.NodeFSInodes); err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, fsInfoTimeout)
	defer cancel()
	images, err := g.images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
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
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	out[space] = evict.Reading{Available: int64(fs.Bavail) * fs.Bsize, Capacity: int64(fs.Blocks) * fs.Bsize}
	if fs.Files > 0 {
		out[inodes] = evict.Reading{Available: int64(fs.Ffree), Capacity: int64(fs.Files)}
	}
	return nil
}

// Pod measures what the pod holds on disk: its volumes and logs now, its
// writable layers as the runtime has last seen them.
func (g machineGauges) Pod(ctx context.Context, pod *v1.Pod) (evict.Storage, error) {
	out := g.runner.Disk.Usage(pod)
	stats, err := g.runner.Stats(ctx, pod)
	if err != nil {
		return out, err
	}
	for _, s := range stats {
		out.Containers[s.GetAttributes().GetMetadata().GetName()] += int64(s.GetWritableLayer().GetUsedBytes().GetValue())
	}
	return out, nil
}
