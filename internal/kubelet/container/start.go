package container

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/objects"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// Container is a container of a pod, and what is to be done to it.
type Container struct {
	Runner *Runner
	Pod    *v1.Pod
	Spec   *v1.Container // nil: the pod has none of that name
	Act    podstep.Action
	PodIPs []string

	// For a start.
	Image  podstep.Image
	Target string    // container whose processes an ephemeral container sees
	Place  pin.Place // where it has been started to run

	// For an end.
	Exited <-chan struct{} // closed when the container has ended
	Hooked bool            // no hook is to be run
}

// CallTimeout bounds a call to the runtime that should be quick.
const CallTimeout = 2 * time.Minute

// StartError is a failed start with the reason that the container's waiting
// state shows.
type StartError struct {
	Reason string
	Err    error
}

func (e *StartError) Error() string { return e.Reason + ": " + e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

// Start creates and starts the container, and runs its postStart hook. It is given up
// when wanted ends: a container whose turn has not come is not created then, and a
// postStart hook is given up; what has been begun is seen through, unless ctx ends. The
// status is of the container as far as it came.
func (c *Container) Start(ctx, wanted context.Context) (*runtimeapi.ContainerStatus, error) {
	if c.Spec == nil {
		return nil, fmt.Errorf("no container %q in the pod", c.Act.Container)
	}
	config, sandbox, err := c.config(ctx)
	switch told := (*StartError)(nil); {
	case errors.As(err, &told):
		return nil, err
	case err != nil:
		return nil, c.fail("CreateContainerConfigError", err)
	}
	leave, err := c.Runner.starts.enter(wanted)
	if err != nil {
		return nil, err
	}
	defer func() { leave() }()
	call, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	created, err := c.Runner.Runtime.CreateContainer(call, &runtimeapi.CreateContainerRequest{PodSandboxId: c.Act.ID, Config: config, SandboxConfig: sandbox})
	if err != nil {
		return nil, c.fail("CreateContainerError", err)
	}
	id := created.ContainerId
	c.event(v1.EventTypeNormal, "Created", "Container created")
	if _, err := c.Runner.Runtime.StartContainer(call, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return c.inspect(ctx, id), c.fail("RunContainerError", err)
	}
	leave()
	leave = func() {} // a hook may take its time
	if err := c.Runner.Disk.LinkLog(c.Pod, c.Spec.Name, id, c.Act.Attempt); err != nil {
		c.Runner.Log.Warn("programs that gather logs do not find that of a container", "id", id, "err", err)
	}
	c.event(v1.EventTypeNormal, "Started", "Container started")
	if l := c.Spec.Lifecycle; l != nil && l.PostStart != nil {
		if err := c.Runner.runHook(wanted, c.hook(id, l.PostStart)); err != nil && ctx.Err() == nil {
			c.event(v1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed")
			c.event(v1.EventTypeNormal, "Killing", "FailedPostStartHook")
			if stopErr := c.giveUp(ctx, id); stopErr != nil {
				err = errors.Join(err, stopErr)
			}
			return c.inspect(ctx, id), &StartError{"PostStartHookError", err}
		}
	}
	return c.inspect(ctx, id), nil
}

// config makes the container's configuration and what it mounts.
func (c *Container) config(ctx context.Context) (*runtimeapi.ContainerConfig, *runtimeapi.PodSandboxConfig, error) {
	node := c.Runner.now()
	in := &cri.ContainerInput{
		Pod: c.Pod, Container: c.Spec, Node: &node, Start: c.Act, PodIPs: c.PodIPs,
		ImageRef: c.Image.Ref, ImageUser: cri.ImageUser{UID: c.Image.UID, Name: c.Image.User}, TargetID: c.Target,
		Objects: c.Runner.Objects.In(ctx), IsMissing: objects.IsMissing,
	}
	if c.Runner.Disk != nil {
		in.ReadFile = c.readFile
	}
	devices, err := c.devices(ctx)
	if err != nil {
		return nil, nil, err
	}
	in.Devices = devices
	config, err := cri.Container(in)
	if err != nil {
		return nil, nil, err
	}
	c.Runner.Pins.Hold(c.Pod, c.Spec.Name, config.Linux.Resources)
	c.Place = pin.Place{CPUs: config.Linux.Resources.CpusetCpus, Nodes: config.Linux.Resources.CpusetMems}
	mounts, err := c.mounts(ctx, config.Envs)
	if err != nil {
		return nil, nil, err
	}
	config.Mounts = mounts
	if devices != nil {
		config.Mounts = slices.Concat(devices.Mounts, mounts)
	}
	blocks, err := c.blockDevices()
	if err != nil {
		return nil, nil, err
	}
	config.Devices = append(config.Devices, blocks...)
	sandbox, _, err := cri.Sandbox(c.Pod, &node, 0)
	if err != nil {
		return nil, nil, err
	}
	own, err := c.Runner.Disk.UsersOf(c.Pod)
	if err != nil {
		return nil, nil, err
	}
	own.Sandbox(sandbox)
	own.Container(config)
	return config, sandbox, nil
}

// giveUp ends a container whose postStart hook has failed, as any other.
func (c *Container) giveUp(ctx context.Context, id string) error {
	grace := 30 * time.Second
	if g := c.Pod.Spec.TerminationGracePeriodSeconds; g != nil {
		grace = time.Duration(*g) * time.Second
	}
	st := c.inspect(ctx, id)
	if c.Spec.Lifecycle.PreStop != nil && st != nil && st.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		end := *c
		end.Act.ID, end.Act.Grace = id, grace
		h := end.beginPreStop(ctx)
		defer h.end()
		grace -= h.took
	}
	return c.Runner.stop(ctx, id, int64(grace/time.Second))
}

// readFile reads a file of one of the pod's volumes.
func (c *Container) readFile(name, path string) ([]byte, error) {
	for i := range c.Pod.Spec.Volumes {
		if v := &c.Pod.Spec.Volumes[i]; v.Name == name {
			return c.Runner.Disk.Volumes.ReadFile(c.Pod, v, path)
		}
	}
	return nil, fmt.Errorf("there is no volume %q", name)
}

func (c *Container) fail(reason string, err error) error {
	c.event(v1.EventTypeWarning, "Failed", "Error: "+runtime.Message(err))
	return &StartError{reason, err}
}

func (c *Container) event(kind, reason, message string) {
	c.Runner.About(c.Pod, c.Spec.Name).Event(kind, reason, message)
}

// inspect is the container's state now; nil if it cannot be had: then events tell.
func (c *Container) inspect(ctx context.Context, id string) *runtimeapi.ContainerStatus {
	resp, err := c.Runner.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		c.Runner.Log.Debug("inspect started container", "id", id, "err", err)
		return nil
	}
	return resp.Status
}
