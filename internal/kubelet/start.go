package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
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

// startError is a failed start with the reason that the container's waiting
// state shows.
type startError struct {
	reason string
	err    error
}

func (e *startError) Error() string { return e.reason + ": " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// run does it. The status is of the container as far as it came; hookCtx bounds
// its postStart hook.
func (s *start) run(ctx, hookCtx context.Context) (*runtimeapi.ContainerStatus, error) {
	if s.container == nil {
		return nil, fmt.Errorf("no container %q in the pod", s.act.Container)
	}
	config, sandbox, err := s.config(ctx)
	if err != nil {
		return nil, s.fail("CreateContainerConfigError", err)
	}
	leave, err := s.a.starts.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { leave() }()
	created, err := s.a.o.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: s.act.ID, Config: config, SandboxConfig: sandbox})
	if err != nil {
		return nil, s.fail("CreateContainerError", err)
	}
	id := created.ContainerId
	s.event(v1.EventTypeNormal, "Created", "Container created")
	if _, err := s.a.o.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return s.status(ctx, id), s.fail("RunContainerError", err)
	}
	leave()
	leave = func() {} // a hook may take its time
	s.event(v1.EventTypeNormal, "Started", "Container started")
	if l := s.container.Lifecycle; l != nil && l.PostStart != nil {
		if err := s.a.runHook(hookCtx, s.hook(id, l.PostStart)); err != nil && ctx.Err() == nil {
			s.event(v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			s.event(v1.EventTypeNormal, "Killing", "FailedPostStartHook")
			if stopErr := s.giveUp(ctx, id); stopErr != nil {
				err = errors.Join(err, stopErr)
			}
			return s.status(ctx, id), &startError{"PostStartHookError", err}
		}
	}
	return s.status(ctx, id), nil
}

// config makes the container's configuration and what it mounts.
func (s *start) config(ctx context.Context) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	node := s.a.nodeFacts()
	in := &cri.ContainerInput{
		Pod: s.pod, Container: s.container, Node: &node, Start: s.act, PodIPs: s.podIPs,
		ImageRef: s.image.Ref, ImageUser: cri.ImageUser{UID: s.image.UID, Name: s.image.User}, TargetID: s.target,
		Objects: s.a.objects.in(ctx), IsMissing: isMissing,
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
	own, err := s.a.usersOf(s.pod)
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
	st := s.status(ctx, id)
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
			return s.a.disk.volumes.ReadFile(s.pod, v, path)
		}
	}
	return nil, fmt.Errorf("there is no volume %q", name)
}

func (s *start) fail(reason string, err error) error {
	s.event(v1.EventTypeWarning, "Failed", "Error: "+message(err))
	return &startError{reason, err}
}

func (s *start) event(kind, reason, message string) {
	s.a.about(s.pod, s.container.Name).event(kind, reason, message)
}

// status is the container's state now; nil if it cannot be had: then events tell.
func (s *start) status(ctx context.Context, id string) *runtimeapi.ContainerStatus {
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
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("stop container: %w", err)
	}
	return nil
}
