package pod

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/kubelet/container"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/pin"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// PoolChanged tells the actors that the processors that containers share are others now.
func (s *Set) PoolChanged() {
	for _, x := range s.all() {
		x.post(func(x *Actor) { x.o.Devices.Misplaced = true })
	}
}

// findPlaces has it looked where containers run that were there before the agent.
func (x *Actor) findPlaces() {
	x.o.Devices.Misplaced = x.s.Runner.Pins.Pools() && len(x.o.Containers) > 0
}

// placeContainers has running containers run where they are to by now.
type placeContainers struct {
	s    *Set
	pod  *v1.Pod
	list []podstep.Container
	at   map[string]pin.Place // where they run, by ID
	done map[string]pin.Place
}

func (x *Actor) placeContainers() work {
	x.o.Devices.Misplaced = false // what changes from now on is seen again
	w := &placeContainers{s: x.s, pod: x.d.Pod, at: map[string]pin.Place{}, done: map[string]pin.Place{}}
	for _, c := range x.o.Containers {
		if c.State == podstep.Running {
			w.list = append(w.list, c)
			if at, ok := x.placed[c.ID]; ok {
				w.at[c.ID] = at
			}
		}
	}
	return w
}

func (w *placeContainers) do(ctx context.Context) error {
	var errs []error
	for _, c := range w.list {
		want := w.s.Runner.Pins.Place(w.pod.UID, c.Name)
		if at, ok := w.at[c.ID]; ok && at == want {
			continue
		}
		if err := w.place(ctx, c.ID, want); err != nil {
			errs = append(errs, fmt.Errorf("place container %s: %w", c.Name, err))
			continue
		}
		w.done[c.ID] = want
	}
	return errors.Join(errs...)
}

func (w *placeContainers) place(ctx context.Context, id string, at pin.Place) error {
	ctx, cancel := context.WithTimeout(ctx, container.CallTimeout)
	defer cancel()
	_, err := w.s.Runner.Runtime.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: id, Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: at.CPUs, CpusetMems: at.Nodes},
	})
	return err
}

func (w *placeContainers) note(x *Actor, err error) {
	for id, at := range w.done {
		if !x.removed[id] {
			x.placed[id] = at
		}
	}
	if err != nil {
		x.o.Devices.Misplaced = true
	}
}

// frozen says why the pod may not ask for other amounts than its containers have got, as long as they have what is theirs alone, as
// [pin.Pins.Frozen] does; empty: it may.
func (x *Actor) frozen() (detail, message string) {
	return x.s.Runner.Pins.Frozen(x.d.Pod, func(name v1.ResourceName) bool {
		for i := range x.o.Containers {
			c := &x.o.Containers[i]
			spec := cri.FindContainer(x.d.Pod, c.Name)
			has := c.Resources
			if now, ok := x.o.Resized[c.ID]; ok {
				has = &now
			}
			if c.State != podstep.Running || spec == nil || has == nil {
				continue
			}
			want := spec.Resources.Requests[name]
			if want.Cmp(has.Requests[name]) != 0 {
				return true
			}
		}
		return false
	})
}
