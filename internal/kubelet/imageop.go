package kubelet

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// ensureImage makes sure that a container's image is there.
type ensureImage struct {
	a         *Agent
	pod       *v1.Pod
	container *v1.Container
	attempt   int
	got       image.Result
}

func (w *ensureImage) do(ctx context.Context) (err error) {
	r := image.Request{
		Pod: w.pod.UID, Image: w.container.Image, Policy: w.container.ImagePullPolicy,
		Secrets: func() *image.Keyring { return w.a.pullSecrets(ctx, w.pod) },
		Event:   func(kind, reason, message string) { w.a.about(w.pod, w.container.Name).event(kind, reason, message) },
	}
	if handler, err := w.a.objects.RuntimeHandler(ctx, w.pod); err == nil {
		r.Runtime = handler
	}
	w.got, err = w.a.puller.Ensure(ctx, r) // an error says that it was given up
	return err
}

func (w *ensureImage) note(x *actor, err error) {
	if err == nil {
		x.o.Images[w.container.Name] = podstep.Image{
			Attempt: w.attempt, Ref: w.got.Ref, UID: w.got.UID, User: w.got.User,
			Reason: w.got.Reason, Message: w.got.Message, Retry: w.got.Retry,
		}
	}
}

// pullSecrets collects the credentials of the pod; one that is missing or broken
// is told and left out, as the image may be public.
func (a *Agent) pullSecrets(ctx context.Context, pod *v1.Pod) *image.Keyring {
	k := &image.Keyring{}
	refers := a.objects.In(ctx)
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := refers.Secret(pod.Namespace, ref.Name)
		if err == nil {
			err = k.AddSecret(s)
		}
		if err != nil {
			a.about(pod, "").event(v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets ("+ref.Name+"); attempting to pull the image may not succeed.")
		}
	}
	return k
}

// newImages makes what pulls images and what removes them.
func (a *Agent) newImages() (err error) {
	if a.providers, err = image.NewProviders(a.o.ImageConfig, a.o.Log); err != nil {
		return err
	}
	a.puller = image.NewPuller(a.o.Images, a.o.ImageConfig, a.nodeCredentials)
	a.collector = image.NewCollector(image.CollectorOptions{
		Config: a.o.ImageConfig, Images: a.o.Images, Runtime: a.o.Runtime, Puller: a.puller, Log: a.o.Log,
		Event: func(kind, reason, message string) { a.o.Events.Event(a.node.Self(), kind, reason, message) },
	})
	return nil
}

// nodeCredentials are those that every pod of the node may pull an image with.
func (a *Agent) nodeCredentials(ctx context.Context, name string) *image.Keyring {
	if a.disk == nil {
		return nil
	}
	k, err := image.NodeKeyring(a.o.RootDir)
	if err != nil {
		a.o.Log.Warn("read registry credentials of the node", "err", err)
	}
	a.providers.AddTo(ctx, k, name)
	return k
}
