package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
	"github.com/kemudi/kemudi/internal/task"
)

// start is one start of one container.
type start struct {
	a         *Agent
	pod       *v1.Pod
	container *v1.Container
	act       podstep.Action
	image     podstep.Image
	podIPs    []string
	target    string // container whose processes an ephemeral container sees
}

// startContainer creates and starts a container, and runs its postStart hook.
type startContainer struct {
	start
	ops    *task.Group
	status *runtimeapi.ContainerStatus // of the container as far as it came
}

func (x *actor) startContainer(act podstep.Action) work {
	pod := x.d.Pod
	w := &startContainer{ops: x.ops, start: start{
		a: x.a, pod: pod, act: act, container: cri.FindContainer(pod, act.Container), image: x.o.Images[act.Container], podIPs: x.podIPs(),
	}}
	for i := range pod.Spec.EphemeralContainers {
		if e := &pod.Spec.EphemeralContainers[i]; e.Name == act.Container && e.TargetContainerName != "" {
			w.target = x.runningID(e.TargetContainerName)
		}
	}
	return w
}

// do is given up when the pod is to end: a container whose turn has not come is
// not created then, and a postStart hook is given up; what has been begun is seen
// through, unless the agent ends.
func (w *startContainer) do(wanted context.Context) (err error) {
	if w.status, err = w.run(w.ops.Context(), wanted); err != nil {
		var f *startError
		if !errors.As(err, &f) {
			return &startError{"CreateContainerError", err}
		}
	}
	return err
}

func (w *startContainer) note(x *actor, _ error) {
	if w.status != nil {
		x.observeContainer(w.status, w.act.ID)
	}
}

// runningID is the ID of the running container with the name, or empty.
func (x *actor) runningID(name string) string {
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.Name == name && c.State == podstep.Running {
			return c.ID
		}
	}
	return ""
}

// startError is a failed start with the reason that the container's waiting
// state shows.
type startError struct {
	reason string
	err    error
}

func (e *startError) Error() string { return e.reason + ": " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// run does it. The status is of the container as far as it came.
func (s *start) run(ctx, wanted context.Context) (*runtimeapi.ContainerStatus, error) {
	if s.container == nil {
		return nil, fmt.Errorf("no container %q in the pod", s.act.Container)
	}
	config, sandbox, err := s.config(ctx)
	if err != nil {
		return nil, s.fail("CreateContainerConfigError", err)
	}
	leave, err := s.a.starts.enter(wanted)
	if err != nil {
		return nil, err
	}
	defer func() { leave() }()
	call, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	created, err := s.a.o.Runtime.CreateContainer(call, &runtimeapi.CreateContainerRequest{PodSandboxId: s.act.ID, Config: config, SandboxConfig: sandbox})
	if err != nil {
		return nil, s.fail("CreateContainerError", err)
	}
	id := created.ContainerId
	s.event(v1.EventTypeNormal, "Created", "Container created")
	if _, err := s.a.o.Runtime.StartContainer(call, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return s.inspect(ctx, id), s.fail("RunContainerError", err)
	}
	leave()
	leave = func() {} // a hook may take its time
	s.event(v1.EventTypeNormal, "Started", "Container started")
	if l := s.container.Lifecycle; l != nil && l.PostStart != nil {
		if err := s.a.runHook(wanted, s.hook(id, l.PostStart)); err != nil && ctx.Err() == nil {
			s.event(v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			s.event(v1.EventTypeNormal, "Killing", "FailedPostStartHook")
			if stopErr := s.giveUp(ctx, id); stopErr != nil {
				err = errors.Join(err, stopErr)
			}
			return s.inspect(ctx, id), &startError{"PostStartHookError", err}
		}
	}
	return s.inspect(ctx, id), nil
}

// config makes the container's configuration and what it mounts.
func (s *start) config(ctx context.Context) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	node := s.a.nodeFacts()
	in := &cri.ContainerInput{
		Pod: s.pod, Container: s.container, Node: &node, Start: s.act, PodIPs: s.podIPs,
		ImageRef: s.image.Ref, ImageUser: cri.ImageUser{UID: s.image.UID, Name: s.image.User}, TargetID: s.target,
		Objects: s.a.objects.In(ctx), IsMissing: objects.IsMissing,
	}
	if s.a.disk != nil {
		in.ReadFile = s.readFile
	}
	config, err := cri.Container(in)
	if err != nil {
		return nil, nil, err
	}
	if config.Mounts, err = s.mounts(ctx, config.Envs); err != nil {
		return nil, nil, err
	}
	sandbox, _, err := cri.Sandbox(s.pod, &node, 0)
	if err != nil {
		return nil, nil, err
	}
	own, err := s.a.disk.UsersOf(s.pod)
	if err != nil {
		return nil, nil, err
	}
	own.Sandbox(sandbox)
	own.Container(config)
	return config, sandbox, nil
}

// giveUp ends a container whose postStart hook has failed, as any other.
func (s *start) giveUp(ctx context.Context, id string) error {
	grace := 30 * time.Second
	if g := s.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = time.Duration(*g) * time.Second
	}
	st := s.inspect(ctx, id)
	if s.container.Lifecycle.PreStop != nil && st != nil && st.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		end := *s
		end.act.ID, end.act.Grace = id, grace
		grace -= end.preStop(ctx, nil)
	}
	return s.a.stopContainer(ctx, id, int64(grace/time.Second))
}

// readFile reads a file of one of the pod's volumes.
func (s *start) readFile(name, path string) ([]byte, error) {
	for i := range s.pod.Spec.Volumes {
		if v := &s.pod.Spec.Volumes[i]; v.Name == name {
			return s.a.disk.Volumes.ReadFile(s.pod, v, path)
		}
	}
	return nil, fmt.Errorf("there is no volume %q", name)
}

func (s *start) fail(reason string, err error) error {
	s.event(v1.EventTypeWarning, "Failed", "Error: "+runtime.Message(err))
	return &startError{reason, err}
}

func (s *start) event(kind, reason, message string) {
	s.a.about(s.pod, s.container.Name).event(kind, reason, message)
}

// inspect is the container's state now; nil if it cannot be had: then events tell.
func (s *start) inspect(ctx context.Context, id string) *runtimeapi.ContainerStatus {
	resp, err := s.a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		s.a.o.Log.Debug("inspect started container", "id", id, "err", err)
		return nil
	}
	return resp.Status
}

// stopContainer ends a container, by force when grace seconds have passed.
func (a *Agent) stopContainer(ctx context.Context, id string, grace int64) error {
	_, err := a.o.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: max(grace, 2)})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("stop container: %w", err)
	}
	return nil
}
