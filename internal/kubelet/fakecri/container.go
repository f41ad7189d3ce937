package fakecri

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CreateContainer makes a container that does not run yet.
func (r *Runtime) CreateContainer(_ context.Context, in *runtimeapi.CreateContainerRequest, _ ...grpc.CallOption) (*runtimeapi.CreateContainerResponse, error) {
	if r.o.Create != nil {
		if err := r.o.Create(in.Config); err != nil {
			return nil, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.mu.sandboxes[in.PodSandboxId]
	if s == nil || !s.ready {
		return nil, notFound("sandbox", in.PodSandboxId)
	}
	c := &container{
		config: in.Config, id: r.idLocked("c"), sandbox: s, program: r.o.Program(in.Config),
		state: runtimeapi.ContainerState_CONTAINER_CREATED, created: time.Now().UnixNano(), exited: make(chan struct{}),
		resources: in.Config.GetLinux().GetResources(),
	}
	r.mu.containers[c.id] = c
	r.mu.calls["CreateContainer"]++
	r.tellLocked(s, c.id, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

// StartContainer starts the container's program.
func (r *Runtime) StartContainer(_ context.Context, in *runtimeapi.StartContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StartContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.containers[in.ContainerId]
	if c == nil {
		return nil, notFound("container", in.ContainerId)
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Error(codes.FailedPrecondition, "container is in "+c.state.String()+" state")
	}
	r.mu.calls["StartContainer"]++
	if p := c.program; p.StartError != "" {
		c.message = p.StartError
		r.endLocked(c, 128, "StartError")
		return nil, status.Error(codes.Unknown, p.StartError)
	}
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.tellLocked(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if p := c.program; p.Ends {
		c.exit = time.AfterFunc(p.After, func() { r.end(c, p.ExitCode, p.Reason) })
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (r *Runtime) end(c *container, code int32, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endLocked(c, code, reason)
}

// endLocked ends the container's process, if it has not ended.
func (r *Runtime) endLocked(c *container, code int32, reason string) {
	if c.state == runtimeapi.ContainerState_CONTAINER_EXITED {
		return
	}
	if c.exit != nil {
		c.exit.Stop()
	}
	if reason == "" {
		reason = "Error"
		if code == 0 {
			reason = "Completed"
		}
	}
	c.state, c.finished, c.exitCode, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), code, reason
	close(c.exited)
	if r.mu.containers[c.id] == c {
		r.tellLocked(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}

// StopContainer asks the program to end, and kills it after the timeout.
func (r *Runtime) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, _ ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	r.mu.Lock()
	c := r.mu.containers[in.ContainerId]
	r.mu.calls["StopContainer"]++
	if c == nil || c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		r.mu.Unlock()
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if r.o.Stop != nil {
		r.o.Stop(c.config)
	}
	exited := c.exited
	p := c.program
	switch {
	case in.Timeout <= 0:
		r.endLocked(c, 137, "Error")
	case p.TermAfter == 0:
		r.endLocked(c, p.TermCode, "")
	case p.TermAfter > 0:
		time.AfterFunc(p.TermAfter, func() { r.end(c, p.TermCode, "") })
	}
	r.mu.Unlock()
	kill := time.NewTimer(time.Duration(in.Timeout) * time.Second)
	defer kill.Stop()
	select {
	case <-exited:
	case <-kill.C:
		r.end(c, 137, "Error")
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// RemoveContainer forgets a container; one that runs is killed.
func (r *Runtime) RemoveContainer(_ context.Context, in *runtimeapi.RemoveContainerRequest, _ ...grpc.CallOption) (*runtimeapi.RemoveContainerResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.mu.containers[in.ContainerId]; c != nil {
		r.endLocked(c, 137, "Error")
		delete(r.mu.containers, c.id)
		r.tellLocked(c.sandbox, c.id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (c *container) status() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created, StartedAt: c.started, FinishedAt: c.finished,
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message, Image: &runtimeapi.ImageSpec{Image: imageName(c.config)},
		ImageRef: c.config.GetImage().GetImage(), Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts,
		Resources: &runtimeapi.ContainerResources{Linux: c.resources},
	}
}

func imageName(c *runtimeapi.ContainerConfig) string {
	if name := c.GetImage().GetUserSpecifiedImage(); name != "" {
		return name
	}
	return c.GetImage().GetImage()
}

// ContainerStatus describes one container.
func (r *Runtime) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.containers[in.ContainerId]
	if c == nil {
		return nil, notFound("container", in.ContainerId)
	}
	return &runtimeapi.ContainerStatusResponse{Status: c.status()}, nil
}

// ListContainers lists by labels and sandbox.
func (r *Runtime) ListContainers(_ context.Context, in *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &runtimeapi.ListContainersResponse{}
	f := in.GetFilter()
	for _, id := range slices.Sorted(maps.Keys(r.mu.containers)) {
		c := r.mu.containers[id]
		if matches(f.GetLabelSelector(), c.config.Labels) && (f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox.id) {
			out.Containers = append(out.Containers, &runtimeapi.Container{
				Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created,
				Labels: c.config.Labels, Annotations: c.config.Annotations, Image: c.config.Image, ImageRef: c.config.GetImage().GetImage(),
			})
		}
	}
	return out, nil
}

// UpdateContainerResources takes the new limits as given. What is not said stays.
func (r *Runtime) UpdateContainerResources(_ context.Context, in *runtimeapi.UpdateContainerResourcesRequest, _ ...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.mu.containers[in.ContainerId]
	if c == nil {
		return nil, notFound("container", in.ContainerId)
	}
	now := proto.CloneOf(c.resources)
	if now == nil {
		now = &runtimeapi.LinuxContainerResources{}
	}
	if len(in.Linux.GetHugepageLimits()) > 0 {
		now.HugepageLimits = nil // all of them are said
	}
	proto.Merge(now, in.Linux)
	c.resources = now
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// ExecSync runs a command as Options.Exec says, or Options.Hang.
func (r *Runtime) ExecSync(ctx context.Context, in *runtimeapi.ExecSyncRequest, _ ...grpc.CallOption) (*runtimeapi.ExecSyncResponse, error) {
	r.mu.Lock()
	c := r.mu.containers[in.ContainerId]
	r.mu.calls["ExecSync"]++
	running := c != nil && c.state == runtimeapi.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if !running {
		return nil, notFound("container", in.ContainerId)
	}
	if r.o.Hang != nil {
		return &runtimeapi.ExecSyncResponse{}, r.o.Hang(ctx, c.config, in.Cmd)
	}
	if r.o.Exec == nil {
		return &runtimeapi.ExecSyncResponse{}, nil
	}
	out, code := r.o.Exec(c.config, in.Cmd)
	return &runtimeapi.ExecSyncResponse{Stdout: []byte(out), ExitCode: code}, nil
}

// Calls returns how often a method was called that changes something.
func (r *Runtime) Calls(method string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.calls[method]
}

// Exit ends the process of every running container with the name in the pod,
// which is named as namespace/name.
func (r *Runtime) Exit(pod, name string, code int32, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.mu.containers {
		m := c.sandbox.config.Metadata
		if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING && c.config.Metadata.Name == name && m.Namespace+"/"+m.Name == pod {
			r.endLocked(c, code, reason)
		}
	}
}

// LoseSandbox lets the sandbox of the pod, which is named as namespace/name,
// die, and all that runs in it.
func (r *Runtime) LoseSandbox(pod string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.mu.sandboxes {
		if m := s.config.Metadata; m.Namespace+"/"+m.Name != pod || !s.ready {
			continue
		}
		for _, c := range r.mu.containers {
			if c.sandbox == s {
				r.endLocked(c, 137, "Error")
			}
		}
		s.ready = false
		r.tellLocked(s, s.id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
}
