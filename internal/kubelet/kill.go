package kubelet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// killContainer runs the preStop hook, within the grace period, and stops the
// container in what is left of it.
type killContainer struct {
	start
	sandbox string
	hooked  bool            // no hook is to be run
	exited  <-chan struct{} // closed when the container has ended
	status  *runtimeapi.ContainerStatus
	gone    bool // the runtime does not know the container
}

func (x *actor) killContainer(act podstep.Action) work {
	w := &killContainer{start: x.onContainer(act), hooked: x.o.Hooked[act.ID] || act.Why == podstep.KilledForRound}
	x.event(act.Container, v1.EventTypeNormal, "Killing", act.Message)
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.ID == act.ID {
			w.sandbox = c.SandboxID
		}
	}
	w.exited = x.exitOf(act.ID)
	return w
}

func (w *killContainer) do(ctx context.Context) error {
	grace := w.act.Grace
	if !w.hooked && w.container != nil && w.container.Lifecycle != nil && w.container.Lifecycle.PreStop != nil {
		grace -= w.preStop(ctx, w.exited)
	}
	if err := w.a.stopContainer(ctx, w.act.ID, int64((grace+time.Second-1)/time.Second)); err != nil {
		return err
	}
	return w.ended(ctx)
}

func (w *killContainer) note(x *actor, _ error) {
	switch {
	case w.gone:
		x.forget(w.act.ID)
	case w.status != nil:
		x.observeContainer(w.status, w.sandbox)
	}
}

// preStop runs the preStop hook of a container whose turn to be killed has not come.
type preStop struct {
	start
	exited <-chan struct{} // closed when the container has ended
}

func (x *actor) preStop(act podstep.Action) work {
	return &preStop{x.onContainer(act), x.exitOf(act.ID)}
}

func (w *preStop) do(ctx context.Context) error {
	w.start.preStop(ctx, w.exited)
	return nil
}

func (w *preStop) note(x *actor, err error) {
	x.o.Hooked[w.act.ID] = x.o.Hooked[w.act.ID] || err == nil
}

// onContainer is what is done to a container of the pod that runs.
func (x *actor) onContainer(act podstep.Action) start {
	return start{a: x.a, pod: x.d.Pod, container: cri.FindContainer(x.d.Pod, act.Container), act: act, podIPs: x.podIPs()}
}

// exitOf returns a channel that is closed when the container has ended.
func (x *actor) exitOf(id string) <-chan struct{} {
	exited := make(chan struct{})
	x.waiters[id] = append(x.waiters[id], exited)
	return exited
}

// preStop runs the container's hook within its grace period, or until the
// container has exited, and returns how long that took.
func (s *start) preStop(ctx context.Context, exited <-chan struct{}) time.Duration {
	began := time.Now()
	hookCtx, cancel := context.WithTimeout(ctx, s.act.Grace)
	defer cancel()
	result := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		err := errors.New("the hook panicked")
		contain.Run(s.a.o.Log, "preStop hook", s.pod.Namespace+"/"+s.pod.Name, func() {
			err = s.a.runHook(hookCtx, s.hook(s.act.ID, s.container.Lifecycle.PreStop))
		})
		result <- err
	})
	select {
	case err := <-result:
		if err != nil && ctx.Err() == nil {
			s.event(v1.EventTypeWarning, "FailedPreStopHook", "PreStopHook failed")
		}
	case <-exited: // there is nothing left to prepare
		cancel()
	}
	wg.Wait()
	return time.Since(began)
}

// exitEventWait is how long the event of a container's exit may take after the runtime
// has said that it is stopped.
const exitEventWait = 10 * time.Second

// ended finds out how the stopped container ended. The runtime may say that it is
// stopped a moment before it knows how: then its event tells.
func (w *killContainer) ended(ctx context.Context) error {
	resp, err := w.a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: w.act.ID})
	switch {
	case runtime.IsNotFound(err):
		w.gone = true
		return nil
	case err != nil:
		return fmt.Errorf("inspect stopped container: %w", err)
	case resp.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
		select {
		case <-w.exited:
			return nil
		case <-time.After(exitEventWait):
			return fmt.Errorf("container %s goes on running after it was stopped", w.act.ID)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.status = resp.Status
	return nil
}

// podIPs are the addresses at which the pod's containers are reached.
func (x *actor) podIPs() []string {
	if x.d.Pod.Spec.HostNetwork {
		return x.a.node.Addresses()
	}
	if len(x.o.Sandboxes) > 0 {
		return x.o.Sandboxes[0].IPs
	}
	return nil
}
