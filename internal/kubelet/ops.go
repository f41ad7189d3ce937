package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/task"
)

// after is run by the actor when an action has ended; nil: nothing to note.
type after func(*actor)

// runtimeDeadline bounds a call to the runtime that should be quick.
const runtimeDeadline = 2 * time.Minute

// networkWait is how long a sandbox waits for the network to come up before it is
// tried, and fails, without.
const networkWait = 10 * time.Second

// prepare takes from the actor what an action needs, and returns what does it.
func (x *actor) prepare(act podstep.Action, h *handle) func(context.Context) after {
	switch act.Op {
	case podstep.PrepareVolumes:
		return x.prepareVolumes()
	case podstep.CreateSandbox:
		return x.createSandbox(act)
	case podstep.StopSandbox:
		return x.retried(act, x.stopSandbox(act))
	case podstep.RemoveSandbox:
		return x.retried(act, x.removeSandbox(act))
	case podstep.EnsureImage:
		return x.ensureImage(act)
	case podstep.StartContainer:
		return x.startContainer(act, h)
	case podstep.PreStop:
		return x.preStop(act)
	case podstep.KillContainer:
		return x.retried(act, x.killContainer(act))
	case podstep.RemoveContainer:
		return x.retried(act, x.removeContainer(act))
	case podstep.CleanUp:
		return x.retried(act, x.cleanUp())
	case mirrorPod:
		return x.retried(act, x.mirrorOp())
	case podstep.WriteStatus:
		if x.static != nil {
			return x.keepStatus()
		}
		return x.retried(act, x.writeStatus())
	case podstep.ResizePod:
		return x.resizePod()
	case weighStorage:
		return x.weighOp()
	case refreshVolumes:
		return x.refreshOp()
	case podstep.DeletePod:
		if x.static != nil {
			return x.retried(act, x.forgetStatic())
		}
		return x.retried(act, x.deletePod(act))
	}
	panic(fmt.Sprintf("kubelet: unknown action %q", act.Op))
}

// retried holds a failed action back for a while, longer each time, so that the
// step, which will ask for it again, does not do so at once.
func (x *actor) retried(act podstep.Action, do func(context.Context) (after, error)) func(context.Context) after {
	key, name := act.Key(), x.name()
	wait := min(time.Second<<min(x.tries[key], 6), time.Minute)
	return func(ctx context.Context) after {
		note, err := do(ctx)
		if err == nil {
			return func(x *actor) {
				delete(x.tries, key)
				if note != nil {
					note(x)
				}
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if !apierrors.IsNotFound(err) { // that the object is gone is news that comes by itself
			x.a.o.Log.Warn("pod action failed", "action", key, "pod", name, "err", err, "retry", wait)
		}
		if task.Sleep(ctx, wait) != nil {
			return nil
		}
		return func(x *actor) { x.tries[key]++ }
	}
}

// name is for logs; the pod's name and namespace never change.
func (x *actor) name() string { return x.d.Pod.Namespace + "/" + x.d.Pod.Name }

// failed notes under key why an action did not work.
func failed(key, reason string, err error) after {
	return func(x *actor) {
		x.o.Failures[key] = podstep.Failure{Reason: reason, Message: message(err), At: time.Now(), Count: x.o.Failures[key].Count + 1}
	}
}

// message is an error's text as users are to see it: without the wrapping of gRPC.
func message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

func (x *actor) createSandbox(act podstep.Action) func(context.Context) after {
	pod := x.d.Pod
	if act.Attempt > 0 {
		x.event("", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	return func(ctx context.Context) after {
		st, err := x.a.runSandbox(ctx, pod, act.Attempt)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			x.a.about(pod, "").event(v1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
			return failed(podstep.SandboxFailure, "", err)
		}
		return func(x *actor) {
			delete(x.o.Failures, podstep.SandboxFailure)
			x.observeSandbox(st)
		}
	}
}

func (a *Agent) runSandbox(ctx context.Context, pod *v1.Pod, attempt int) (*runtimeapi.PodSandboxStatus, error) {
	handler, err := a.runtimeHandler(ctx, pod)
	if err != nil {
		return nil, err
	}
	node := a.nodeFacts()
	config, notes, err := cri.Sandbox(pod, &node, attempt)
	if err != nil {
		return nil, err
	}
	for _, n := range notes {
		a.about(pod, "").event(v1.EventTypeWarning, n.Reason, n.Message)
	}
	if err := a.checkOwnUsers(ctx, pod, handler); err != nil {
		return nil, err
	}
	own, err := a.usersOf(pod)
	if err != nil {
		return nil, err
	}
	own.Sandbox(config)
	if err := a.prepareSandbox(pod, &node, config); err != nil {
		return nil, err
	}
	if !pod.Spec.HostNetwork {
		select { // right after the machine's start, the network may need a moment
		case <-a.networkUp:
		case <-time.After(networkWait):
		case <-ctx.Done():
		}
	}
	leave, err := a.sandboxes.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	resp, err := a.o.Runtime.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err != nil {
		return nil, err
	}
	st, err := a.o.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: resp.PodSandboxId})
	if err != nil {
		return nil, fmt.Errorf("inspect new sandbox: %w", err)
	}
	return st.Status, nil
}

// turnstile lets only so many through at a time: started all together, pods
// would all be slow.
type turnstile chan struct{}

// enter waits for a turn; leave gives it up.
func (s turnstile) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (x *actor) stopSandbox(act podstep.Action) func(context.Context) (after, error) {
	return func(ctx context.Context) (after, error) {
		ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
		defer cancel()
		_, err := x.a.o.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: act.ID})
		if err != nil && !isNotFound(err) {
			return nil, fmt.Errorf("stop sandbox: %w", err)
		}
		return func(x *actor) {
			for i := range x.o.Sandboxes {
				if s := &x.o.Sandboxes[i]; s.ID == act.ID {
					s.Ready, s.Stopped = false, true
				}
			}
		}, nil
	}
}

// removeSandbox removes a sandbox, and the pod's logs before it if the pod is
// gone: the sandbox is what a later process would know of them by.
func (x *actor) removeSandbox(act podstep.Action) func(context.Context) (after, error) {
	pod, gone := x.d.Pod, x.d.Gone
	return func(ctx context.Context) (after, error) {
		ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
		defer cancel()
		if gone {
			if err := x.a.removePodLogs(pod); err != nil {
				return nil, err
			}
		}
		_, err := x.a.o.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: act.ID})
		if err != nil && !isNotFound(err) {
			return nil, fmt.Errorf("remove sandbox: %w", err)
		}
		return func(x *actor) { x.forget(act.ID) }, nil
	}
}

func (x *actor) removeContainer(act podstep.Action) func(context.Context) (after, error) {
	return func(ctx context.Context) (after, error) {
		ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
		defer cancel()
		log := x.a.logOf(ctx, act.ID)
		_, err := x.a.o.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: act.ID})
		if err != nil && !isNotFound(err) {
			return nil, fmt.Errorf("remove container: %w", err)
		}
		if err := x.a.removeLog(log); err != nil {
			return nil, err
		}
		return func(x *actor) { x.forget(act.ID) }, nil
	}
}

// startContainer creates and starts a container, and runs its postStart hook.
func (x *actor) startContainer(act podstep.Action, h *handle) func(context.Context) after {
	s := &start{a: x.a, pod: x.d.Pod, act: act, container: cri.FindContainer(x.d.Pod, act.Container), image: x.o.Images[act.Container]}
	if len(x.o.Sandboxes) > 0 {
		s.podIPs = x.o.Sandboxes[0].IPs
	}
	if x.d.Pod.Spec.HostNetwork {
		s.podIPs = x.a.nodeIPs()
	}
	for i := range x.d.Pod.Spec.EphemeralContainers {
		if e := &x.d.Pod.Spec.EphemeralContainers[i]; e.Name == act.Container && e.TargetContainerName != "" {
			s.target = x.runningID(e.TargetContainerName)
		}
	}
	var hookCtx context.Context
	hookCtx, h.cancelHook = context.WithCancel(x.ops.Context())
	return func(ctx context.Context) after {
		defer h.cancelHook()
		st, err := s.run(ctx, hookCtx)
		note := func(*actor) {}
		if st != nil {
			note = func(x *actor) { x.observeContainer(st, act.ID) }
		}
		if err == nil {
			return func(x *actor) {
				delete(x.o.Failures, act.Container)
				note(x)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		var f *startError
		if !errors.As(err, &f) {
			f = &startError{"CreateContainerError", err}
		}
		return func(x *actor) {
			note(x)
			failed(act.Container, f.reason, f.err)(x)
		}
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
