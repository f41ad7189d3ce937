package disk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/csi"
	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/plugin"
	"github.com/kemudi/kemudi/internal/kubelet/users"
	"github.com/kemudi/kemudi/internal/kubelet/volume"
)

// Disk is what the pods of one node have on the machine. Its methods may be
// called concurrently, those about one pod one after another.
type Disk struct {
	Volumes *volume.Manager
	Driven  *csi.Volumes // those of CSI drivers
	Logs    *logs.Rotator

	o       Options
	cgroups cgroup.Tree
	users   *users.Ranges
}

// Options of a Disk; all are required.
type Options struct {
	RootDir     string    // of volumes and other files of pods
	PodLogsDir  string    // of the logs of containers
	LogLinksDir string    // where links lead to these logs
	Node        *cri.Node // says where the cgroups of pods are, and what it has for pods
	Driven      csi.Options
	Logs        *logs.Rotator
	Log         *slog.Logger
}

// New returns the disk of a machine.
func New(o Options) (*Disk, error) {
	pods := filepath.Join(o.RootDir, "pods")
	volumes, err := volume.NewManager(pods, o.Node, o.Log)
	if err != nil {
		return nil, err
	}
	ranges, err := users.Open(pods, "/etc")
	if err != nil {
		return nil, err
	}
	for _, name := range plugin.Dirs() { // as plugins expect them
		if err := os.MkdirAll(filepath.Join(o.RootDir, name), 0o750); err != nil {
			return nil, fmt.Errorf("make directory of plugins: %w", err)
		}
	}
	if err := volume.Share(o.RootDir); err != nil {
		o.Log.Warn("what drivers of volumes mount does not reach other pods", "err", err)
	}
	driven, err := csi.Open(o.Driven)
	if err != nil {
		return nil, err
	}
	d := &Disk{Volumes: volumes, Driven: driven, Logs: o.Logs, o: o, cgroups: cgroup.Open(cgroup.Top), users: ranges}
	if err := d.freeClasses(); err != nil {
		o.Log.Warn("what was set of the memory of classes of pods stays", "err", err)
	}
	return d, nil
}

// Close leaves the machine as it was, if there are no pods: those that there are outlive the agent.
func (d *Disk) Close() error {
	if d == nil {
		return nil
	}
	if pods, err := d.Volumes.Pods(); err != nil || len(pods) > 0 {
		return err
	}
	return volume.Unshare(d.o.RootDir)
}

// CleanUp removes all that the pod has on the machine, except sandboxes and logs.
func (d *Disk) CleanUp(ctx context.Context, uid types.UID) error {
	if d == nil {
		return nil
	}
	if err := errors.Join(d.Volumes.ReleaseParts(uid), d.Driven.TearDown(ctx, uid)); err != nil {
		return err
	}
	if err := d.Volumes.CleanUp(ctx, uid); err != nil {
		return err
	}
	for _, qos := range []v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort} {
		pod := &v1.Pod{}
		pod.UID = uid
		if err := d.cgroups.Remove(d.o.Node.Cgroup(pod, qos)); err != nil {
			return err
		}
	}
	return nil
}

// RemoveLeftovers removes what is there for pods that are not known, and reports whether that has worked.
func (d *Disk) RemoveLeftovers(ctx context.Context, known func(types.UID) bool) (done bool) {
	if d == nil {
		return true
	}
	done = true
	uids, err := d.Volumes.Pods()
	if err != nil {
		d.o.Log.Warn("look for leftovers of pods", "err", err)
	}
	for _, class := range []string{"", "/burstable", "/besteffort"} {
		for _, name := range d.cgroups.Children(d.o.Node.CgroupParent + "/kubepods" + class) {
			if uid, ok := strings.CutPrefix(name, "pod"); ok {
				uids = append(uids, types.UID(uid))
			}
		}
	}
	for _, uid := range uids {
		if known(uid) {
			continue
		}
		d.o.Log.Info("remove leftovers of pod", "uid", uid)
		err := d.CleanUp(ctx, uid)
		if err == nil {
			err = d.Forget(uid)
		}
		if err != nil {
			d.o.Log.Warn("remove leftovers of pod", "uid", uid, "err", err)
			done = false
		}
	}
	return done
}

// Forget removes the last that is there of a pod: its logs, which are found by its
// UID, and the directory that says that there may be some.
func (d *Disk) Forget(uid types.UID) error {
	if d == nil {
		return nil
	}
	dirs, err := filepath.Glob(cri.PodLogDir(d.o.PodLogsDir, "*", "*", string(uid)))
	if err != nil {
		return fmt.Errorf("find logs of pod: %w", err)
	}
	for _, dir := range dirs {
		if err := d.removePodLogs(dir); err != nil {
			return err
		}
	}
	if err := d.users.Release(uid); err != nil {
		return err
	}
	return d.Volumes.Forget(uid)
}

// UsersOf returns the users that the pod has for itself, nil if it has the node's.
func (d *Disk) UsersOf(pod *v1.Pod) (*cri.Users, error) {
	if d == nil || !cri.HasOwnUsers(pod) {
		return nil, nil
	}
	r, err := d.users.Of(pod.UID)
	if err != nil {
		return nil, err
	}
	return &cri.Users{First: r.First, Count: users.Size}, nil
}

// Held is what a pod holds there.
type Held struct {
	// Volumes is by name of those that the node makes, as far as they are there.
	Volumes map[string]machine.Files
	Logs    map[string]machine.Files // by the names of containers
	Other   machine.Files            // that the node makes for the pod
}

// Measure looks at all that the pod holds there, file by file; the writable layers of its containers are elsewhere.
func (d *Disk) Measure(pod *v1.Pod) Held {
	out := Held{Volumes: map[string]machine.Files{}, Logs: map[string]machine.Files{}}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; volume.Made(v) {
			if held := machine.FilesBelow(d.Volumes.Path(pod, v)); held.Inodes > 0 {
				out.Volumes[v.Name] = held
			}
		}
	}
	dir := cri.PodLogDir(d.o.PodLogsDir, pod.Namespace, pod.Name, string(pod.UID))
	logs := func(container string) { out.Logs[container] = machine.FilesBelow(filepath.Join(dir, container)) }
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			logs(list[i].Name)
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		logs(pod.Spec.EphemeralContainers[i].Name)
	}
	out.Other = machine.FilesBelow(filepath.Join(d.Volumes.PodDir(pod.UID), "containers"))
	return out
}

// Usage is what the pod holds there now; of its containers, only their logs.
func (d *Disk) Usage(pod *v1.Pod) evict.Storage {
	held := d.Measure(pod)
	out := evict.Storage{Volumes: map[string]int64{}, Containers: map[string]int64{}, Other: held.Other.Bytes}
	out.Inodes = held.Other.Inodes
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		f, ok := held.Volumes[v.Name]
		if !ok {
			continue
		}
		out.Volumes[v.Name] = f.Bytes
		if evict.LocalVolume(v) {
			out.Inodes += f.Inodes
		}
	}
	for name, f := range held.Logs {
		out.Containers[name] = f.Bytes
		out.Inodes += f.Inodes
	}
	return out
}
