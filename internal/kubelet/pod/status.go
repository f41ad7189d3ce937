package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/resource"
)

// apiDeadline bounds a request to the API.
const apiDeadline = 30 * time.Second

// writeStatus puts the status of the last step into the API. The object's
// revision goes along: if it has changed, the step is taken anew on what is there
// now (P2).
type writeStatus struct {
	s     *Set
	pod   *v1.Pod // what to write, and then what has been
	began time.Time
}

func (w *writeStatus) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	written, err := w.s.api.UpdateStatus(ctx, w.pod)
	if apierrors.IsConflict(err) {
		written, err = w.s.readAgain(ctx, w.pod)
	}
	if err != nil {
		return fmt.Errorf("write status: %w", err)
	}
	w.pod = written
	return nil
}

// That the pod is gone counts only once the cache says so too: else an older update
// would bring it back.
func (w *writeStatus) note(x *Actor, err error) {
	if err == nil {
		x.s.metrics.synced.Observe(time.Since(w.began).Seconds())
		x.update(w.pod, resource.Revision(w.pod))
	}
}

// readAgain reads a pod that others have changed. A node may read its own pods, of
// which one that has gone is none: so a refusal most likely says that, which is no cause
// for alarm. It may say so of a pod that is there: what was to be done is not done by it.
func (s *Set) readAgain(ctx context.Context, pod *v1.Pod) (*v1.Pod, error) {
	now, err := s.api.Get(ctx, pod.Namespace, pod.Name)
	if apierrors.IsForbidden(err) {
		err = apierrors.NewNotFound(v1.Resource("pods"), pod.Name)
	}
	return now, err
}

var errRaced = errors.New("it changes all the time")

// removePod takes the object out of the API: nothing is left of the pod on the
// node. The action stays under way until the cache shows that it is gone, which
// may take long if others hold the object by finalizers.
type removePod struct {
	s   *Set
	pod *v1.Pod
	act podstep.Action
}

func (w *removePod) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	now := int64(0)
	err := w.s.api.Delete(ctx, w.pod.Namespace, w.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &w.pod.UID},
	})
	if apierrors.IsConflict(err) { // with other writers, or it is another pod by now
		var now *v1.Pod
		if now, err = w.s.readAgain(ctx, w.pod); err == nil && now.UID == w.pod.UID {
			err = errRaced
		}
		if err != nil { // also if it seems to have gone: the next attempt will know
			return fmt.Errorf("delete pod: %w", err)
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod: %w", err)
	}
	return nil
}

func (w *removePod) note(x *Actor, err error) {
	if err == nil {
		x.o.Doing[w.act.Key()] = w.act
	}
}
