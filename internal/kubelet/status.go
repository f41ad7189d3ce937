package kubelet

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// apiDeadline bounds a request to the API.
const apiDeadline = 30 * time.Second

// writeStatus puts the status of the last step into the API. The object's
// revision goes along: if it has changed, the step is taken anew on what is there
// now (K3).
func (x *actor) writeStatus() func(context.Context) (after, error) {
	pod := x.d.Pod.DeepCopy()
	pod.Status = x.status
	return func(ctx context.Context) (after, error) {
		ctx, cancel := context.WithTimeout(ctx, apiDeadline)
		defer cancel()
		written, err := x.a.pods.UpdateStatus(ctx, pod)
		if apierrors.IsConflict(err) {
			written, err = x.a.pods.Get(ctx, pod.Namespace, pod.Name)
		}
		return x.sawPod(written, err, "write status")
	}
}

// sawPod notes what a request about the pod has shown. That it is gone counts
// only once the cache says so too: else older news of it would bring it back.
func (x *actor) sawPod(pod *v1.Pod, err error, doing string) (after, error) {
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return func(x *actor) { x.update(pod, objectRevision(pod)) }, nil
}

var errRaced = errors.New("it changes all the time")

// deletePod takes the object out of the API: nothing is left of the pod on the
// node. The action stays under way until the cache shows that it is gone, which
// may take long if others hold the object by finalizers.
func (x *actor) deletePod(act podstep.Action) func(context.Context) (after, error) {
	pod := x.d.Pod
	return func(ctx context.Context) (after, error) {
		ctx, cancel := context.WithTimeout(ctx, apiDeadline)
		defer cancel()
		now := int64(0)
		err := x.a.pods.Delete(ctx, pod.Namespace, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
		if apierrors.IsConflict(err) { // with other writers, or it is another pod by now
			var now *v1.Pod
			if now, err = x.a.pods.Get(ctx, pod.Namespace, pod.Name); err == nil && now.UID == pod.UID {
				err = errRaced
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("delete pod: %w", err)
		}
		return func(x *actor) { x.o.Doing[act.Key()] = act }, nil
	}
}
