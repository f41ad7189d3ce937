package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/cgroup"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/machine"
	"github.com/kemudi/kemudi/internal/kubelet/pod"
	"github.com/kemudi/kemudi/internal/kubelet/usage"
)

// serveSummary answers with what the node, its pods and their containers use now.
func (s *Server) serveSummary(w http.ResponseWriter, r *http.Request) {
	look, err := s.snapshot(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	summary := look.Summary(s.o.NodeName)
	volumes, stored := s.local(r.Context())
	volumes = append(volumes, s.volumes(r.Context())...)
	usage.AddVolumes(&summary, volumes)
	usage.AddStored(&summary, stored, volumes)
	writeJSON(w, summary)
}

// serveScrape answers with the same in the form of cAdvisor.
func (s *Server) serveScrape(w http.ResponseWriter, r *http.Request) {
	look, err := s.snapshot(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(look)
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(w, r)
}

// snapshot looks at the node, its pods and their containers.
func (s *Server) snapshot(ctx context.Context) (*usage.Snapshot, error) {
	used, there, err := s.listed(ctx)
	if err != nil {
		return nil, err
	}
	tree, runner := cgroup.Open(cgroup.Top), s.o.Pods.Runner
	look := &usage.Snapshot{
		Stats: used, Containers: there, Capacity: runner.Node.Capacity(nil), Now: time.Now(), Node: s.machine(ctx), Read: tree.Read,
		PodsCgroup: runner.Facts.CgroupParent + "/kubepods",
	}
	sandboxes := map[string]string{} // by the UIDs of pods
	if look.Node == nil {
		look.Read = func(string) cgroup.Values { return nil }
	} else {
		ready := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
		list, err := s.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: ready})
		if err != nil {
			return nil, err
		}
		for _, box := range list.Items {
			sandboxes[box.Labels[cri.LabelPodUID]] = box.Id
		}
	}
	for _, p := range s.o.Cached.ByIndex("spec.nodeName", s.o.NodeName) {
		look.Pods = append(look.Pods, s.podOf(p, tree, sandboxes))
	}
	return look, nil
}

// listed are the containers that the runtime has, and what they use. After an error what could be had is there.
func (s *Server) listed(ctx context.Context) (used []*runtimeapi.ContainerStats, there []*runtimeapi.Container, err error) {
	stats, err := s.runtime.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	list, listErr := s.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	return stats.GetStats(), list.GetContainers(), errors.Join(err, listErr)
}

// podOf is a pod and what has passed the links of its sandbox.
func (s *Server) podOf(p *v1.Pod, tree cgroup.Tree, sandboxes map[string]string) usage.Pod {
	running := *p
	running.UID = pod.RunningUID(p)
	out := usage.Pod{UID: string(running.UID), Namespace: p.Namespace, Name: p.Name, Cgroup: s.o.Pods.Runner.Facts.Cgroup(&running, core.QOSClass(p))}
	if t := p.Status.StartTime; t != nil {
		out.Started = t.Time
	}
	box := sandboxes[out.UID]
	if box == "" || out.Cgroup == "" || p.Spec.HostNetwork {
		return out
	}
	if process := tree.FirstProcess(out.Cgroup + "/" + box); process != "" {
		out.Interfaces, _ = machine.Interfaces(process) // it may have ended
	}
	return out
}

// A rate of use is told of the time since an earlier look, which is not a moment ago, and not long.
const (
	shortest = 10 * time.Second
	longest  = 5 * time.Minute
)

// machine looks at the machine; nil: there is none, or it cannot be seen.
func (s *Server) machine(ctx context.Context) *usage.Node {
	if s.o.Pods.Runner.Disk == nil {
		return nil
	}
	n, err := s.lookAtMachine(ctx)
	if err != nil {
		s.o.Log.Warn("look at what the node uses", "err", err)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.mu.used; before != nil && n.Used.At.Sub(before.At) < longest {
		n.Before = before
	}
	if s.mu.used == nil || n.Used.At.Sub(s.mu.used.At) > shortest {
		s.mu.used = &n.Used
	}
	return n
}

func (s *Server) lookAtMachine(ctx context.Context) (*usage.Node, error) {
	used, err := machine.Used()
	if err != nil {
		return nil, err
	}
	n := &usage.Node{Info: s.o.Machine, Used: *used, Default: machine.DefaultInterface()}
	if n.Interfaces, err = machine.Interfaces("self"); err != nil {
		return nil, err
	}
	if n.Processes, n.MostOfThem, err = machine.Processes(); err != nil {
		return nil, err
	}
	if n.Disk, err = machine.FileSystemOf(s.o.RootDir); err != nil {
		return nil, err
	}
	images, err := s.o.Images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, err
	}
	n.Images = n.Disk
	for _, fs := range images.ImageFilesystems {
		if at, err := machine.FileSystemOf(fs.GetFsId().GetMountpoint()); err == nil {
			n.Images, n.ImagesUsed = at, fs
		}
	}
	n.Layers = n.Images
	for _, fs := range images.ContainerFilesystems { // of a runtime that keeps them elsewhere
		if at, err := machine.FileSystemOf(fs.GetFsId().GetMountpoint()); err == nil {
			n.Layers, n.LayersUsed = at, fs
		}
	}
	return n, nil
}
