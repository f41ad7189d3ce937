package kubelet

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/image"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// ensureImage makes sure that a container's image is there.
func (x *actor) ensureImage(act podstep.Action) func(context.Context) after {
	pod := x.d.Pod
	c := cri.FindContainer(pod, act.Container)
	return func(ctx context.Context) after {
		r := image.Request{
			Pod: pod.UID, Image: c.Image, Policy: c.ImagePullPolicy,
			Secrets: func() *image.Keyring { return x.a.pullSecrets(ctx, pod) },
			Event:   func(kind, reason, message string) { x.a.about(pod, c.Name).event(kind, reason, message) },
		}
		if handler, err := x.a.runtimeHandler(ctx, pod); err == nil {
			r.Runtime = handler
		}
		got, err := x.a.puller.Ensure(ctx, r)
		if err != nil { // given up
			return func(x *actor) {
				x.o.Images[act.Container] = podstep.Image{Attempt: act.Attempt, Retry: time.Now().Add(time.Second)}
			}
		}
		return func(x *actor) {
			x.o.Images[act.Container] = podstep.Image{
				Attempt: act.Attempt, Ref: got.Ref, UID: got.UID, User: got.User,
				Reason: got.Reason, Message: got.Message, Retry: got.Retry,
			}
		}
	}
}

// pullSecrets collects the credentials of the pod; one that is missing or broken
// is told and left out, as the image may be public.
func (a *Agent) pullSecrets(ctx context.Context, pod *v1.Pod) *image.Keyring {
	k := &image.Keyring{}
	objects := a.objects.in(ctx)
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := objects.Secret(pod.Namespace, ref.Name)
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
		Event: func(kind, reason, message string) { a.o.Events.Event(a.self(), kind, reason, message) },
	})
	return nil
}

// self is the node as the API has it; before that, its name.
func (a *Agent) self() *v1.Node {
	if node, ok := a.nodeCache.Get("", a.o.NodeName); ok {
		return node
	}
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.o.NodeName}}
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
