package kubelet

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// killContainer runs the preStop hook, within the grace period, and stops the
// container in what is left of it.
func (x *actor) killContainer(act podstep.Action) func(context.Context) (after, error) {
	pod := x.d.Pod
	spec := cri.FindContainer(pod, act.Container)
	ips := x.podIPs()
	x.event(act.Container, v1.EventTypeNormal, "Killing", act.Message)
	sandbox := ""
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.ID == act.ID {
			sandbox = c.SandboxID
		}
	}
	exited := make(chan struct{})
	x.waiters[act.ID] = append(x.waiters[act.ID], exited)
	hooked := x.o.Hooked[act.ID] || act.Why == podstep.KilledForRound
	return func(ctx context.Context) (after, error) {
		s := &start{a: x.a, pod: pod, container: spec, act: act, podIPs: ips}
		grace := act.Grace
		if !hooked && spec != nil && spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil {
			grace -= s.preStop(ctx, exited)
		}
		if err := x.a.stopContainer(ctx, act.ID, int64((grace+time.Second-1)/time.Second)); err != nil {
			return nil, err
		}
		return x.a.ended(ctx, act.ID, sandbox, exited)
	}
}

// preStop runs the preStop hook of a container whose turn to be killed has not come.
func (x *actor) preStop(act podstep.Action) func(context.Context) after {
	s := &start{a: x.a, pod: x.d.Pod, container: cri.FindContainer(x.d.Pod, act.Container), act: act, podIPs: x.podIPs()}
	exited := make(chan struct{})
	x.waiters[act.ID] = append(x.waiters[act.ID], exited)
	return func(ctx context.Context) after {
		s.preStop(ctx, exited)
		return func(x *actor) { x.o.Hooked[act.ID] = true }
	}
}

// preStop runs the container's hook within its grace period, or until the
// container has exited, and returns how long that took.
func (s *start) preStop(ctx context.Context, exited <-chan struct{}) time.Duration {
	began := time.Now()
	hookCtx, cancel := context.WithTimeout(ctx, s.act.Grace)
	defer cancel()
	result := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() { result <- s.a.runHook(hookCtx, s.hook(s.act.ID, s.container.Lifecycle.PreStop)) })
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

// exitNews is how long the news of a container's exit may take after the runtime
// has said that it is stopped.
const exitNews = 10 * time.Second

// ended notes how a stopped container ended. The runtime may say that it is
// stopped a moment before it knows how: then its event tells.
func (a *Agent) ended(ctx context.Context, id, sandbox string, exited <-chan struct{}) (after, error) {
	resp, err := a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	switch {
	case isNotFound(err):
		return func(x *actor) { x.forget(id) }, nil
	case err != nil:
		return nil, fmt.Errorf("inspect stopped container: %w", err)
	case resp.Status.State == runtimeapi.ContainerState_CONTAINER_RUNNING:
		select {
		case <-exited:
			return nil, nil
		case <-time.After(exitNews):
			return nil, fmt.Errorf("container %s goes on running after it was stopped", id)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return func(x *actor) { x.observeContainer(resp.Status, sandbox) }, nil
}

// podIPs are the addresses at which the pod's containers are reached.
func (x *actor) podIPs() []string {
	if x.d.Pod.Spec.HostNetwork {
		return x.a.nodeIPs()
	}
	if len(x.o.Sandboxes) > 0 {
		return x.o.Sandboxes[0].IPs
	}
	return nil
}
