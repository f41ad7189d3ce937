package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
)

// MirrorOf is the UID of the static pod of which a pod of the API is the mirror;
// empty if it is none.
func MirrorOf(pod *v1.Pod) types.UID { return types.UID(pod.Annotations[v1.MirrorPodAnnotationKey]) }

// RunningUID is the UID under which the node runs a pod of the API.
func RunningUID(pod *v1.Pod) types.UID {
	if uid := MirrorOf(pod); uid != "" {
		return uid
	}
	return pod.UID
}

// NewStatic returns the actor of a static pod, for Start; mirror is what the API has of
// its mirror, nil: nothing. onEnd is called when nothing is left of the pod.
func (s *Set) NewStatic(pod, mirror *v1.Pod, onEnd func(*Actor)) *Actor {
	x := newActor(s, pod, 0)
	x.o.Mirror, x.onEnd = &podstep.Mirror{}, onEnd
	x.sawMirror(mirror)
	return x
}

// RemoveStatic ends a static pod: its file has gone.
func (x *Actor) RemoveStatic() { x.post((*Actor).removeStatic) }

// SawMirror tells the actor of a static pod what the API has of its mirror; nil: nothing.
func (x *Actor) SawMirror(mirror *v1.Pod) { x.post(func(x *Actor) { x.sawMirror(mirror) }) }

// removeStatic ends the pod: its file has gone.
func (x *Actor) removeStatic() {
	if x.d.Pod.DeletionTimestamp != nil {
		return
	}
	pod := x.d.Pod.DeepCopy()
	now := metav1.Now().Rfc3339Copy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, pod.Spec.TerminationGracePeriodSeconds
	x.d.Pod = pod
}

// DeleteMirror takes a mirror out of the API.
func (s *Set) DeleteMirror(ctx context.Context, mirror *v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	now := int64(0)
	err := s.api.Delete(ctx, mirror.Namespace, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete mirror: %w", err)
	}
	return nil
}

// mirrorPod makes the API's image of a static pod, and tells it the pod's status.
type mirrorPod struct {
	s      *Set
	pod    *v1.Pod
	mirror *v1.Pod // as written
}

func (w *mirrorPod) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	s, pod := w.s, w.pod
	mirror, err := s.api.Get(ctx, pod.Namespace, pod.Name)
	switch {
	case apierrors.IsNotFound(err):
		mirror = nil
	case err != nil:
		return fmt.Errorf("look for mirror: %w", err)
	case MirrorOf(mirror) == "":
		return errors.New("mirror static pod: another pod has its name")
	case mirror.DeletionTimestamp != nil || MirrorOf(mirror) != pod.UID:
		if err := s.DeleteMirror(ctx, mirror); err != nil {
			return err
		}
		mirror = nil
	}
	if mirror == nil {
		node, err := s.Runner.Node.Get(ctx)
		if err != nil {
			return fmt.Errorf("look for the owner of the mirror: %w", err)
		}
		if mirror, err = s.api.Create(ctx, newMirror(pod, node)); err != nil {
			return fmt.Errorf("create mirror: %w", err)
		}
	}
	mirror = mirror.DeepCopy()
	mirror.Status = *pod.Status.DeepCopy() // what is written is handed over; the actor goes on with its own
	if w.mirror, err = s.api.UpdateStatus(ctx, mirror); err != nil {
		return fmt.Errorf("write status of mirror: %w", err)
	}
	return nil
}

func (w *mirrorPod) note(x *Actor, err error) {
	if err == nil {
		x.sawMirror(w.mirror)
		x.o.Mirror.Reported, x.o.Mirror.Written = w.mirror.UID, &w.pod.Status
	}
}

// sawMirror takes in what the API has of the mirror of a static pod; nil: none.
func (x *Actor) sawMirror(mirror *v1.Pod) {
	m := x.o.Mirror
	if m.UID = ""; mirror != nil {
		m.UID, m.Of, m.Leaving = mirror.UID, MirrorOf(mirror), mirror.DeletionTimestamp != nil
	}
}

// newMirror is the image of a static pod in the API, owned by the node.
func newMirror(pod *v1.Pod, node *v1.Node) *v1.Pod {
	m := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Name: pod.Name, Labels: pod.Labels, Annotations: maps.Clone(pod.Annotations),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: ptr.To(true)}},
	}, Spec: *pod.Spec.DeepCopy()}
	m.Annotations[v1.MirrorPodAnnotationKey] = pod.Annotations[manifest.AnnotationHash]
	return m
}

// keepStatus is what writing the status of a static pod comes to: the actor
// remembers it, and the mirror is told.
type keepStatus struct{ status v1.PodStatus }

func (w *keepStatus) do(context.Context) error { return nil }

func (w *keepStatus) note(x *Actor, _ error) {
	pod := *x.d.Pod
	pod.Status = w.status
	x.d.Pod = &pod
}

// removeMirror takes the mirror of a static pod that has ended out of the API.
type removeMirror struct {
	s   *Set
	pod *v1.Pod
}

func (w *removeMirror) do(ctx context.Context) error {
	mirror, err := w.s.api.Get(ctx, w.pod.Namespace, w.pod.Name)
	if err == nil && MirrorOf(mirror) == w.pod.UID {
		err = w.s.DeleteMirror(ctx, mirror)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (w *removeMirror) note(x *Actor, err error) { x.d.Gone = err == nil }
