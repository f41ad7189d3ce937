package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/evict"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// measureStorage measures what the pod holds on disk.
type measureStorage struct {
	s    *Set
	pod  *v1.Pod
	held evict.Storage
}

func (w *measureStorage) do(ctx context.Context) (err error) {
	w.held, err = w.s.Usage(ctx, w.pod)
	return err
}

func (w *measureStorage) note(x *Actor, err error) {
	x.o.Storage.Since = x.now
	if err == nil {
		x.o.Storage.Held = w.held
	}
}

// evictedEvent tells the user, and programs by annotations, why the node does without the pod.
func (x *Actor) evictedEvent(message string) {
	about := x.s.Runner.About(x.d.Pod, "")
	if x.d.Evict != nil {
		about.Annotations = x.d.Evict.Annotations
	}
	about.Event(v1.EventTypeWarning, podstep.ReasonEvicted, message)
}

// evict ends the pod because the node is short of something.
func (x *Actor) evict(e podstep.Eviction) {
	if x.d.Evict != nil || x.d.Gone {
		return
	}
	x.d.Evict = &e
	clear(x.o.Failures) // what is asked for now is another thing
}
