package pod

import (
	"context"
	"errors"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/task"
)

// startContainer creates and starts a container, and runs its postStart hook.
type startContainer struct {
	*container.Container
	ops    *task.Group
	status *runtimeapi.ContainerStatus // of the container as far as it came
}

func (x *Actor) startContainer(act podstep.Action) work {
	w := &startContainer{Container: x.onContainer(act), ops: x.ops}
	w.Image = x.o.Images[act.Container]
	for i := range w.Pod.Spec.EphemeralContainers {
		if e := &w.Pod.Spec.EphemeralContainers[i]; e.Name == act.Container && e.TargetContainerName != "" {
			w.Target = x.runningID(e.TargetContainerName)
		}
	}
	return w
}

// do is given up when the pod is to end, and seen through as far as it has come
// unless the agent ends.
func (w *startContainer) do(wanted context.Context) (err error) {
	if w.status, err = w.Start(tracing.Carry(w.ops.Context(), wanted), wanted); err != nil {
		var f *container.StartError
		if !errors.As(err, &f) {
			return &container.StartError{Reason: "CreateContainerError", Err: err}
		}
	}
	return err
}

func (w *startContainer) note(x *Actor, err error) {
	x.s.metrics.triedContainer(w.Pod, w.Act.Container, reasonOf(err))
	if w.status != nil {
		x.observeContainer(w.status, w.Act.ID)
		x.placed[w.status.Id] = w.Place
		x.o.Devices.Misplaced = x.o.Devices.Misplaced || w.Place != x.s.Runner.Pins.Place(x.uid, w.Act.Container) // others have come meanwhile
	}
}

// runningID is the ID of the running container with the name, or empty.
func (x *Actor) runningID(name string) string {
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.Name == name && c.State == podstep.Running {
			return c.ID
		}
	}
	return ""
}
