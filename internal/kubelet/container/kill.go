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

// PreStop runs the container's hook to its end, which is that of the container at the latest.
func (c *Container) PreStop(ctx context.Context) {
	h := c.beginPreStop(ctx)
	defer h.end()
	select {
	case <-h.returned:
	case <-c.Exited:
	case <-ctx.Done():
	}
}

// preStop is a hook that has been begun. Its time is the grace period; if it is not done then, it goes on beside the end of the
// container, which has two seconds more for it, until end is called.
type preStop struct {
	took     time.Duration // until it was done, or its time was over
	returned chan struct{} // closed when it has returned
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

func (h *preStop) end() {
	h.cancel()
	h.wg.Wait()
}

// beginPreStop runs the container's hook, and returns when it is done, when its grace period is over, or when the container has
// exited.
func (c *Container) beginPreStop(ctx context.Context) *preStop {
	began := time.Now()
	h := &preStop{returned: make(chan struct{})}
	hook, cancel := context.WithCancel(ctx)
	h.cancel = cancel
	err := errors.New("the hook panicked")
	h.wg.Go(func() {
		defer close(h.returned)
		contain.Run(c.Runner.Log, "preStop hook", c.Pod.Namespace+"/"+c.Pod.Name, func() {
			err = c.Runner.runHook(hook, c.hook(c.Act.ID, c.Spec.Lifecycle.PreStop))
		})
	})
	late := time.NewTimer(c.Act.Grace)
	defer late.Stop()
	failed := false
	select {
	case <-h.returned:
		failed = err != nil
	case <-late.C:
		failed = true
	case <-c.Exited: // there is nothing left to prepare
	case <-ctx.Done():
	}
	if failed && ctx.Err() == nil {
		c.event(v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
	}
	h.took = time.Since(began)
	return h
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
		h := c.beginPreStop(ctx)
		defer h.end()
		grace -= h.took
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
