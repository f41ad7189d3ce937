package container

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/kubelet/image"
)

// EnsureImage makes sure that the image of a container of the pod is there. An error
// says that it was given up.
func (r *Runner) EnsureImage(ctx context.Context, pod *v1.Pod, c *v1.Container) (image.Result, error) {
	return r.ensureImage(ctx, pod, c.Name, image.Request{Image: c.Image, Policy: c.ImagePullPolicy})
}

// ensureImage makes sure that an image is there that a container of the pod needs, for itself or for a volume.
func (r *Runner) ensureImage(ctx context.Context, pod *v1.Pod, container string, q image.Request) (image.Result, error) {
	q.Pod, q.Event = pod.UID, r.About(pod, container).Event
	q.Secrets = func() *image.Keyring { return r.pullSecrets(ctx, pod) }
	if handler, err := r.Objects.RuntimeHandler(ctx, pod); err == nil {
		q.Runtime = handler
	}
	if pod.Spec.ServiceAccountName != "" {
		q.Account = r.account(pod)
	}
	return r.Puller.Ensure(ctx, q)
}

// account is what credential providers may know of the pod's service account.
func (r *Runner) account(pod *v1.Pod) *image.Account {
	return &image.Account{
		Get: func(ctx context.Context) (*v1.ServiceAccount, error) { return r.Objects.Account(ctx, pod) },
		Token: func(ctx context.Context, audience string) (string, error) {
			got, err := r.Objects.RequestToken(ctx, pod, audience, nil)
			if err != nil {
				return "", err
			}
			return got.Status.Token, nil
		},
	}
}

// pullSecrets collects the credentials of the pod; one that is missing or broken
// is told and left out, as the image may be public.
func (r *Runner) pullSecrets(ctx context.Context, pod *v1.Pod) *image.Keyring {
	k := &image.Keyring{}
	objects := r.Objects.In(ctx)
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := objects.Secret(pod.Namespace, ref.Name)
		if err == nil {
			err = k.AddSecret(s)
		}
		if err != nil {
			r.About(pod, "").Event(v1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
				"Unable to retrieve some image pull secrets ("+ref.Name+"); attempting to pull the image may not succeed.")
		}
	}
	return k
}
