package pod

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// drainPod waits until nothing new is sent to the pod, for a while.
type drainPod struct {
	s     *Set
	pod   *v1.Pod
	grace time.Duration
	still error // why something may still be sent to it
}

func (w *drainPod) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.grace)
	defer cancel()
	w.still = w.s.Drained(ctx, w.pod)
	return nil
}

func (w *drainPod) note(x *Actor, _ error) {
	x.o.Drain.Over = true
	if w.still == nil || x.d.Gone {
		return
	}
	x.event("", v1.EventTypeWarning, "NotDrained", "Stopping, though Services may still send it connections: "+w.still.Error())
}

// giveUpDrain ends the wait: the containers are told to end now.
func (x *Actor) giveUpDrain() {
	if h := x.handles[podstep.Action{Op: podstep.DrainPod}.Key()]; h != nil {
		h.cancel()
	}
}
