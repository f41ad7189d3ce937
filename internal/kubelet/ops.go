package kubelet

import (
	"context"
	"errors"
	"fmt"
	stdruntime "runtime"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// work is an action as a value: what it takes from the actor, and what comes of it.
type work interface {
	// do carries it out beside the actor, which it must not touch.
	do(ctx context.Context) error
	// note has the actor take in what has come of it; err is what do returned, or
	// errPanicked.
	note(x *actor, err error)
}

var errPanicked = errors.New("the node agent panicked")

// runtimeDeadline bounds a call to the runtime that should be quick.
const runtimeDeadline = 2 * time.Minute

// networkWait is how long a sandbox waits for the network to come up before it is
// tried, and fails, without.
const networkWait = 10 * time.Second

// prepare takes from the actor what an action needs.
func (x *actor) prepare(act podstep.Action) work {
	a, pod := x.a, x.d.Pod
	switch act.Op {
	case podstep.PrepareVolumes:
		return x.prepareVolumes()
	case podstep.RefreshVolumes:
		x.o.Volumes.Stale = false
		return &refreshVolumes{a: a, pod: pod}
	case podstep.MeasureStorage:
		return &measureStorage{a: a, pod: pod}
	case podstep.CreateSandbox:
		return x.createSandbox(act)
	case podstep.StopSandbox:
		return &stopSandbox{a, act.ID}
	case podstep.RemoveSandbox:
		return &removeSandbox{a: a, pod: pod, gone: x.d.Gone, id: act.ID}
	case podstep.EnsureImage:
		return &ensureImage{a: a, pod: pod, container: cri.FindContainer(pod, act.Container), attempt: act.Attempt}
	case podstep.StartContainer:
		return x.startContainer(act)
	case podstep.PreStop:
		return x.preStop(act)
	case podstep.KillContainer:
		return x.killContainer(act)
	case podstep.RemoveContainer:
		return &removeContainer{a, act.ID}
	case podstep.RunProbe:
		return x.runProbe(act)
	case podstep.ResizePod:
		return x.resizePod()
	case podstep.CleanUp:
		return &cleanUp{a, x.uid}
	}
	return x.prepareWrite(act)
}

// prepareWrite is prepare for what goes to the API.
func (x *actor) prepareWrite(act podstep.Action) work {
	a, pod := x.a, x.d.Pod
	switch act.Op {
	case podstep.WriteStatus:
		pod = pod.DeepCopy()
		pod.Status = x.status
		return &writeStatus{a: a, pod: pod}
	case podstep.DeletePod:
		return &removePod{a, pod, act}
	case podstep.KeepStatus:
		return &keepStatus{x.status}
	case podstep.MirrorPod:
		return &mirrorPod{a: a, pod: pod}
	case podstep.RemoveMirror:
		return &removeMirror{a, pod}
	}
	panic(fmt.Sprintf("kubelet: unknown action %q", act.Op))
}

// name is for logs; the pod's name and namespace never change.
func (x *actor) name() string { return x.d.Pod.Namespace + "/" + x.d.Pod.Name }

// createSandbox makes a sandbox for the pod.
type createSandbox struct {
	a       *Agent
	pod     *v1.Pod
	attempt int
	made    *runtimeapi.PodSandboxStatus
}

func (x *actor) createSandbox(act podstep.Action) work {
	if act.Attempt > 0 {
		x.event("", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	return &createSandbox{a: x.a, pod: x.d.Pod, attempt: act.Attempt}
}

func (w *createSandbox) do(ctx context.Context) (err error) {
	if w.made, err = w.a.runSandbox(ctx, w.pod, w.attempt); err != nil && ctx.Err() == nil {
		w.a.about(w.pod, "").event(v1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
	}
	return err
}

func (w *createSandbox) note(x *actor, err error) {
	if err == nil {
		x.observeSandbox(w.made)
	}
}

func (a *Agent) runSandbox(ctx context.Context, pod *v1.Pod, attempt int) (*runtimeapi.PodSandboxStatus, error) {
	handler, err := a.objects.RuntimeHandler(ctx, pod)
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
	own, err := a.disk.UsersOf(pod)
	if err != nil {
		return nil, err
	}
	own.Sandbox(config)
	if err := a.disk.PrepareSandbox(config, cri.PodCgroup(pod, &node), a.ledger.Burstable()); err != nil {
		return nil, err
	}
	if !pod.Spec.HostNetwork {
		select { // right after the machine's start, the network may need a moment
		case <-a.node.NetworkUp():
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
	if ips := cri.ObservedSandbox(st.Status).IPs; a.o.Connected != nil && len(ips) > 0 {
		a.o.Connected(ips)
	}
	return st.Status, nil
}

// atOnce is how many sandboxes, and how many containers, are started at a time.
func atOnce() int { return max(4, 2*stdruntime.NumCPU()) }

// semaphore lets only so many through at a time: started all together, pods
// would all be slow.
type semaphore chan struct{}

// enter waits for a turn; leave gives it up.
func (s semaphore) enter(ctx context.Context) (leave func(), err error) {
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// stopSandbox has a sandbox give its network back.
type stopSandbox struct {
	a  *Agent
	id string
}

func (w *stopSandbox) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	_, err := w.a.o.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: w.id})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("stop sandbox: %w", err)
	}
	return nil
}

func (w *stopSandbox) note(x *actor, err error) {
	for i := range x.o.Sandboxes {
		if s := &x.o.Sandboxes[i]; err == nil && s.ID == w.id {
			s.Ready, s.Stopped = false, true
		}
	}
}

// removeSandbox removes a sandbox, and the pod's logs before it if the pod is
// gone: the sandbox is what a later process would know of them by.
type removeSandbox struct {
	a    *Agent
	pod  *v1.Pod
	gone bool
	id   string
}

func (w *removeSandbox) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	if w.gone {
		if err := w.a.disk.RemovePodLogs(w.pod); err != nil {
			return err
		}
	}
	_, err := w.a.o.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: w.id})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("remove sandbox: %w", err)
	}
	return nil
}

func (w *removeSandbox) note(x *actor, err error) {
	if err == nil {
		x.forget(w.id)
	}
}

// removeContainer removes a container and its log.
type removeContainer struct {
	a  *Agent
	id string
}

func (w *removeContainer) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, runtimeDeadline)
	defer cancel()
	log := ""
	if w.a.disk != nil {
		log = w.a.logOf(ctx, w.id)
	}
	_, err := w.a.o.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: w.id})
	if err != nil && !runtime.IsNotFound(err) {
		return fmt.Errorf("remove container: %w", err)
	}
	return w.a.disk.RemoveLog(log)
}

func (w *removeContainer) note(x *actor, err error) {
	if err == nil {
		x.forget(w.id)
	}
}

// logOf is the path of a container's log; empty if there is none.
func (a *Agent) logOf(ctx context.Context, id string) string {
	resp, err := a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ""
	}
	return resp.GetStatus().GetLogPath()
}

// cleanUp removes all that the pod has on the machine, except sandboxes and logs.
type cleanUp struct {
	a   *Agent
	uid types.UID
}

func (w *cleanUp) do(context.Context) error { return w.a.disk.CleanUp(w.uid) }

func (w *cleanUp) note(x *actor, err error) { x.o.CleanedUp = err == nil }
