package pod

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// DevicesChanged tells the actors of pods that something has changed of the devices that they have.
func (s *Set) DevicesChanged(pods []types.UID) {
	for _, uid := range pods {
		if x := s.actor(uid); x != nil {
			x.post((*Actor).devicesChanged)
		}
	}
}

// ClaimsChanged tells the actors of pods with claims that a driver can be asked now.
func (s *Set) ClaimsChanged() {
	for _, x := range s.all() {
		x.post(func(x *Actor) {
			delete(x.o.Failures, podstep.Action{Op: podstep.PrepareClaims}.Key())
			if len(core.ResourceClaimNames(x.d.Pod)) > 0 {
				delete(x.o.Failures, podstep.Action{Op: podstep.CleanUp}.Key())
			}
		})
	}
}

func (x *Actor) devicesChanged() {
	x.seeDevices()
	clear(x.o.Failures) // perhaps it works now
}

// findDevices looks which devices the pod still needs. What is on the node already, ours, was taken on
// with them.
func (x *Actor) findDevices(ours bool) {
	if x.d.Fail == nil && !core.PodTerminal(x.d.Pod) && x.d.Pod.DeletionTimestamp == nil {
		x.o.Devices.Unallocated = !ours && x.s.Runner.Pins.Wants(x.d.Pod)
		x.o.Devices.Unprepared = x.s.Runner.Claims.Wants(x.d.Pod)
	}
	x.seeDevices()
}

// seeDevices looks how the devices of the pod are.
func (x *Actor) seeDevices() {
	health := x.s.Runner.Devices.Health(x.uid)
	for container, list := range x.s.Runner.Claims.Health(x.d.Pod) {
		if health == nil {
			health = map[string][]v1.ResourceStatus{}
		}
		health[container] = append(health[container], list...)
	}
	x.o.Devices.Health = health
}

// allocateDevices gives the pod what is to be its own, or has it rejected.
type allocateDevices struct {
	s       *Set
	pod     *v1.Pod
	refused *podstep.Failure
}

func (w *allocateDevices) do(ctx context.Context) error {
	err := w.s.Runner.Pins.Take(ctx, w.pod)
	if err == nil || ctx.Err() != nil {
		return err
	}
	reason, message := pin.Refusal(err)
	w.s.Runner.About(w.pod, "").Event(v1.EventTypeWarning, reason, message)
	w.refused = &podstep.Failure{Reason: reason, Message: "Pod was rejected: " + message}
	return nil // it is not tried again
}

func (w *allocateDevices) note(x *Actor, err error) {
	if err != nil {
		return
	}
	x.o.Devices.Unallocated = false
	if w.refused != nil {
		x.d.Fail = w.refused
		x.s.metrics.rejected(w.refused)
	}
	x.seeDevices()
}

// prepareClaims has drivers make the devices of the pod's claims ready.
type prepareClaims struct {
	s   *Set
	pod *v1.Pod
}

func (w *prepareClaims) do(ctx context.Context) error {
	err := w.s.Runner.Claims.Prepare(ctx, w.pod)
	if err != nil && ctx.Err() == nil {
		w.s.Runner.About(w.pod, "").Event(v1.EventTypeWarning, "FailedPrepareDynamicResources", fmt.Sprintf("Failed to prepare dynamic resources: %v", err))
	}
	return err
}

func (w *prepareClaims) note(x *Actor, err error) {
	if err == nil {
		x.o.Devices.Unprepared = false
		x.seeDevices()
	}
}
