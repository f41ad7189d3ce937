package container

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// PreStop runs the container's hook within its grace period, or until the
// container has exited, and returns how long that took.
func (c *Container) PreStop(ctx context.Context) time.Duration {
	began := time.Now()
	hookCtx, cancel := context.WithTimeout(ctx, c.Act.Grace)
	defer cancel()
	result := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := errors.New("the hook panicked")
		contain.Run(c.Runner.Log, "preStop hook", c.Pod.Namespace+"/"+c.Pod.Name, func() {
			err = c.Runner.runHook(hookCtx, c.hook(c.Act.ID, c.Spec.Lifecycle.PreStop))
		})
		result <- err
	})
	select {
	case err := <-result:
		if err != nil && ctx.Err() == nil {
			c.event(v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
	case <-c.Exited: // there is nothing left to prepare
		cancel()
	}
	wg.Wait()
	return time.Since(began)
}

// exitEventWait is how long the event of a container's exit may take after the runtime
// has said that it is stopped.
const exitEventWait = 10 * time.Second

// Kill runs the preStop hook, within the grace period, and stops the container in what
// is left of it. The status is how it ended, nil if its event tells; gone says that the
// runtime does not know the container.
func (c *Container) Kill(ctx context.Context) (s *runtimeapi.ContainerStatus, gone bool, err error) {
	grace := c.Act.Grace
	if !c.Hooked && c.Spec != nil && c.Spec.Lifecycle != nil && c.Spec.Lifecycle.PreStop != nil {
		grace -= c.PreStop(ctx)
	}
	if err := c.Runner.stop(ctx, c.Act.ID, int64((grace+time.Second-1)/time.Second)); err != nil {
		return nil, false, err
	}
	return c.ended(ctx)
}

// ended finds out how the stopped container ended. The runtime may say that it is
// stopped a moment before it knows how: then its event tells.
func (c *Container) ended(ctx context.Context) (s *runtimeapi.ContainerStatus, gone bool, err error) {
	resp, err := c.Runner.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.Act.ID})
	switch {
	case runtime.IsNotFound(err):
		return nil, true, nil
	case err != nil:
		return nil, false, fmt.Errorf("inspect stopped container: %w", err)
	case resp.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
		select {
		case <-c.Exited:
			return nil, false, nil
		case <-time.After(exitEventWait):
			return nil, false, fmt.Errorf("container %s goes on running after it was stopped", c.Act.ID)
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
	return resp.Status, false, nil
}

// stop ends a container, by force when grace seconds have passed.
func (r *Runner) stop(ctx context.Context, id string, grace int64) error {
	_, err := r.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: max(grace, 2)})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("stop container: %w", err)
	}
	return nil
}
