package pod

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// work is an action as a value: what it takes from the actor, and what comes of it.
type work interface {
	// do carries it out beside the actor, which it must not touch.
	do(ctx context.Context) error
	// note has the actor take in what has come of it; err is what do returned, or
	// errPanicked.
	note(x *Actor, err error)
}

var errPanicked = errors.New("the node agent panicked")

// prepare takes from the actor what an action needs.
func (x *Actor) prepare(act podstep.Action) work {
	s, pod := x.s, x.d.Pod
	switch act.Op {
	case podstep.AllocateDevices:
		return &allocateDevices{s: s, pod: pod}
	case podstep.PrepareClaims:
		return &prepareClaims{s: s, pod: pod}
	case podstep.PrepareVolumes:
		return x.prepareVolumes()
	case podstep.RefreshVolumes:
		x.o.Volumes.Stale = false
		return &refreshVolumes{s: s, pod: pod}
	case podstep.MeasureStorage:
		return &measureStorage{s: s, pod: pod}
	case podstep.CreateSandbox:
		return x.createSandbox(act)
	case podstep.StopSandbox:
		return &stopSandbox{s, act.ID}
	case podstep.RemoveSandbox:
		return &removeSandbox{s: s, pod: pod, gone: x.d.Gone, id: act.ID}
	case podstep.EnsureImage:
		x.starting.pull(1, x.now)
		return &ensureImage{s: s, pod: pod, container: cri.FindContainer(pod, act.Container), attempt: act.Attempt}
	case podstep.StartContainer:
		return x.startContainer(act)
	case podstep.DrainPod:
		return &drainPod{s: s, pod: pod, grace: act.Grace}
	case podstep.PreStop:
		return x.preStop(act)
	case podstep.KillContainer:
		return x.killContainer(act)
	case podstep.RemoveContainer:
		return &removeContainer{s, act.ID}
	case podstep.RunProbe:
		return x.runProbe(act)
	case podstep.ResizePod:
		return x.resizePod()
	case podstep.PlaceContainers:
		return x.placeContainers()
	case podstep.CleanUp:
		return &cleanUp{s, pod}
	}
	return x.prepareWrite(act)
}

// prepareWrite is prepare for what goes to the API.
func (x *Actor) prepareWrite(act podstep.Action) work {
	s, pod := x.s, x.d.Pod
	switch act.Op {
	case podstep.WriteStatus:
		pod = pod.DeepCopy()
		pod.Status = x.status
		return &writeStatus{s: s, pod: pod, began: x.now}
	case podstep.DeletePod:
		return &removePod{s, pod, act}
	case podstep.KeepStatus:
		return &keepStatus{x.status}
	case podstep.MirrorPod:
		return &mirrorPod{s: s, pod: pod}
	case podstep.RemoveMirror:
		return &removeMirror{s, pod}
	}
	panic(fmt.Sprintf("pod: unknown action %q", act.Op))
}

// name is for logs; the pod's name and namespace never change.
func (x *Actor) name() string { return x.d.Pod.Namespace + "/" + x.d.Pod.Name }

// createSandbox makes a sandbox for the pod.
type createSandbox struct {
	s       *Set
	pod     *v1.Pod
	attempt int
	made    *runtimeapi.PodSandboxStatus
}

func (x *Actor) createSandbox(act podstep.Action) work {
	if act.Attempt > 0 {
		x.event("", v1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	return &createSandbox{s: x.s, pod: podstep.Allocated(x.d, &x.o), attempt: act.Attempt}
}

func (w *createSandbox) do(ctx context.Context) (err error) {
	w.made, err = w.s.Runner.RunSandbox(ctx, w.pod, w.attempt)
	switch about := w.s.Runner.About(w.pod, ""); {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, container.ErrNetwork):
		about.Event(v1.EventTypeWarning, "NetworkNotReady", err.Error())
	default:
		about.Event(v1.EventTypeWarning, "FailedCreatePodSandBox", fmt.Sprintf("Failed to create pod sandbox: %v", err))
	}
	return err
}

func (w *createSandbox) note(x *Actor, err error) {
	x.s.metrics.triedSandbox(w.pod, err)
	if err == nil {
		x.observeSandbox(w.made)
		x.o.PodResized = core.PodLevelResources(w.pod)
	}
}

// stopSandbox has a sandbox give its network back.
type stopSandbox struct {
	s  *Set
	id string
}

func (w *stopSandbox) do(ctx context.Context) error { return w.s.Runner.StopSandbox(ctx, w.id) }

func (w *stopSandbox) note(x *Actor, err error) {
	for i := range x.o.Sandboxes {
		if s := &x.o.Sandboxes[i]; err == nil && s.ID == w.id {
			s.Ready, s.Stopped = false, true
		}
	}
}

// removeSandbox removes a sandbox, and the pod's logs before it if the pod is
// gone: the sandbox is what a later process would know of them by.
type removeSandbox struct {
	s    *Set
	pod  *v1.Pod
	gone bool
	id   string
}

func (w *removeSandbox) do(ctx context.Context) error {
	if w.gone {
		if err := w.s.Runner.Disk.RemovePodLogs(w.pod); err != nil {
			return err
		}
	}
	return w.s.Runner.RemoveSandbox(ctx, w.id)
}

func (w *removeSandbox) note(x *Actor, err error) {
	if err == nil {
		x.forget(w.id)
	}
}

// removeContainer removes a container and its log.
type removeContainer struct {
	s  *Set
	id string
}

func (w *removeContainer) do(ctx context.Context) error { return w.s.Runner.Remove(ctx, w.id) }

func (w *removeContainer) note(x *Actor, err error) {
	if err == nil {
		x.forget(w.id)
	}
}

// cleanUp removes all that the pod has on the machine, except sandboxes and logs.
type cleanUp struct {
	s   *Set
	pod *v1.Pod
}

func (w *cleanUp) do(ctx context.Context) error {
	if err := w.s.Runner.Claims.Unprepare(ctx, w.pod.UID); err != nil {
		return err
	}
	return w.s.Runner.Disk.CleanUp(ctx, w.pod.UID)
}

func (w *cleanUp) note(x *Actor, err error) { x.o.CleanedUp = err == nil }
