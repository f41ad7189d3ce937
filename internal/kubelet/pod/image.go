package pod

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// ensureImage makes sure that a container's image is there.
type ensureImage struct {
	s         *Set
	pod       *v1.Pod
	container *v1.Container
	attempt   int
	got       image.Result
}

func (w *ensureImage) do(ctx context.Context) (err error) {
	w.got, err = w.s.Runner.EnsureImage(ctx, w.pod, w.container)
	return err
}

func (w *ensureImage) note(x *Actor, err error) {
	x.starting.pull(-1, x.now)
	if w.got.Reason != "" {
		x.s.metrics.triedContainer(w.pod, w.container.Name, w.got.Reason)
	}
	if err == nil {
		x.o.Images[w.container.Name] = podstep.Image{
			Name: w.container.Image, Attempt: w.attempt, Ref: w.got.Ref, UID: w.got.UID, User: w.got.User,
			Reason: w.got.Reason, Message: w.got.Message, Retry: w.got.Retry,
		}
	}
}
