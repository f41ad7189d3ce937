package pod

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// View is what a pod's actor knows of it at one moment.
type View struct {
	Pod        *v1.Pod
	Sandbox    string              // ID of the newest, if it is ready
	Containers []podstep.Container // nobody may change them
}

// View asks the actor of a pod what it knows; nil: there is none.
func (s *Set) View(ctx context.Context, uid types.UID) (*View, error) {
	x := s.actor(uid)
	if x == nil {
		return nil, nil
	}
	answer := make(chan *View, 1) // buffered: nobody may be waiting any more
	x.post(func(x *Actor) {
		v := &View{Pod: x.d.Pod, Containers: slices.Clone(x.o.Containers)}
		if len(x.o.Sandboxes) > 0 && x.o.Sandboxes[0].Ready {
			v.Sandbox = x.o.Sandboxes[0].ID
		}
		answer <- v
	})
	select {
	case v := <-answer:
		return v, nil
	case <-x.done:
		return nil, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ExitOf returns a channel that is closed when the container of the pod has ended.
func (s *Set) ExitOf(uid types.UID, container string) <-chan struct{} {
	done := make(chan struct{})
	x := s.actor(uid)
	if x == nil {
		close(done)
		return done
	}
	x.post(func(x *Actor) {
		for i := range x.o.Containers {
			if c := &x.o.Containers[i]; c.ID == container && c.State == podstep.Running {
				x.waiters[container] = append(x.waiters[container], done)
				return
			}
		}
		close(done)
	})
	return done
}

// Late is the pod of which an update has waited longest for its actor, and how long.
func (s *Set) Late() (uid types.UID, most time.Duration) {
	for _, x := range s.all() {
		if waits := x.behind(); waits > most {
			uid, most = x.uid, waits
		}
	}
	return uid, most
}

// Unfinished are the pods that have not ended, as their actors know them. The API may
// learn later that a pod has ended, or, cut off, not for a long time.
func (s *Set) Unfinished() []*v1.Pod {
	return slices.DeleteFunc(ask(s, (*Actor).unfinished), func(p *v1.Pod) bool { return p == nil })
}

func (x *Actor) unfinished() *v1.Pod {
	select {
	case <-x.left:
		return nil
	default:
	}
	if core.PodTerminal(x.d.Pod) { // its first step is yet to come
		return nil
	}
	return x.d.Pod
}

// Running are the pods whose sandboxes run, with no more than their names and the containers that run.
func (s *Set) Running() (list []v1.Pod) {
	for _, p := range ask(s, (*Actor).running) {
		if p != nil {
			list = append(list, *p)
		}
	}
	return list
}

func (x *Actor) running() *v1.Pod {
	if len(x.o.Sandboxes) == 0 || !x.o.Sandboxes[0].Ready {
		return nil
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: x.d.Pod.Namespace, Name: x.d.Pod.Name, UID: x.uid}}
	for i := range x.o.Containers {
		if c := &x.o.Containers[i]; c.State == podstep.Running {
			one := v1.Container{Name: c.Name}
			if spec := cri.FindContainer(x.d.Pod, c.Name); spec != nil {
				one.Image = spec.Image
			}
			p.Spec.Containers = append(p.Spec.Containers, one)
		}
	}
	return p
}

// Allocated are the pods that the node has taken on and that have not ended, as [podstep.Allocated], without statuses.
func (s *Set) Allocated() (list []v1.Pod) {
	for _, p := range ask(s, (*Actor).allocated) {
		if p != nil {
			list = append(list, *p)
		}
	}
	return list
}

func (x *Actor) allocated() *v1.Pod {
	if x.d.Gone || x.d.Fail != nil || x.unfinished() == nil {
		return nil
	}
	p := *podstep.Allocated(x.d, &x.o)
	p.Status = v1.PodStatus{}
	return &p
}

// ask has f answered by every actor. Those that are busy for a second, or end
// meanwhile, are left out.
func ask[T any](s *Set, f func(*Actor) T) (out []T) {
	ctx, cancel := context.WithTimeout(s.group.Context(), time.Second)
	defer cancel()
	actors := s.all()
	answers := make(chan T, len(actors)) // buffered: an answer may come too late
	for _, x := range actors {
		x.post(func(x *Actor) { answers <- f(x) })
	}
	for range actors {
		select {
		case one := <-answers:
			out = append(out, one)
		case <-ctx.Done():
			return out
		}
	}
	return out
}
