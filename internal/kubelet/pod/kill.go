package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// killContainer runs the preStop hook, within the grace period, and stops the
// container in what is left of it.
type killContainer struct {
	*container.Container
	sandbox string
	status  *runtimeapi.ContainerStatus
	gone    bool // the runtime does not know the container
}

func (x *Actor) killContainer(act podstep.Action) work {
	w := &killContainer{Container: x.onContainer(act)}
	w.Hooked = x.o.Hooked[act.ID] || act.Why == podstep.KilledForRound
	x.killing(act)
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.ID == act.ID {
			w.sandbox = c.SandboxID
		}
	}
	w.Exited = x.exitOf(act.ID)
	return w
}

func (w *killContainer) do(ctx context.Context) (err error) {
	w.status, w.gone, err = w.Kill(ctx)
	return err
}

func (w *killContainer) note(x *Actor, _ error) {
	switch {
	case w.gone:
		x.forget(w.Act.ID)
	case w.status != nil:
		x.observeContainer(w.status, w.sandbox)
	}
}

// killing tells people that the end of a container begins, if they have not been told.
func (x *Actor) killing(act podstep.Action) {
	if act.Message != "" {
		x.event(act.Container, v1.EventTypeNormal, "Killing", act.Message)
	}
}

// preStop runs the preStop hook of a container whose turn to be killed has not come.
type preStop struct{ *container.Container }

func (x *Actor) preStop(act podstep.Action) work {
	x.killing(act)
	w := &preStop{x.onContainer(act)}
	w.Exited = x.exitOf(act.ID)
	return w
}

func (w *preStop) do(ctx context.Context) error {
	w.PreStop(ctx)
	return nil
}

func (w *preStop) note(x *Actor, err error) {
	x.o.Hooked[w.Act.ID] = x.o.Hooked[w.Act.ID] || err == nil
}

// onContainer is a container of the pod, and what is to be done to it.
func (x *Actor) onContainer(act podstep.Action) *container.Container {
	pod := podstep.Allocated(x.d, &x.o)
	return &container.Container{Runner: x.s.Runner, Pod: pod, Spec: cri.FindContainer(pod, act.Container), Act: act, PodIPs: x.podIPs()}
}

// exitOf returns a channel that is closed when the container has ended.
func (x *Actor) exitOf(id string) <-chan struct{} {
	exited := make(chan struct{})
	x.waiters[id] = append(x.waiters[id], exited)
	return exited
}

// podIPs are the addresses at which the pod's containers are reached.
func (x *Actor) podIPs() []string {
	if x.d.Pod.Spec.HostNetwork {
		return x.s.Runner.Node.Addresses()
	}
	if len(x.o.Sandboxes) > 0 {
		return x.o.Sandboxes[0].IPs
	}
	return nil
}
