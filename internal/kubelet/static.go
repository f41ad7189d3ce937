package kubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/kubelet/contain"
	"github.com/kemudi/kemudi/internal/kubelet/inotify"
	"github.com/kemudi/kemudi/internal/kubelet/manifest"
	"github.com/kemudi/kemudi/internal/kubelet/podstep"
	"github.com/kemudi/kemudi/internal/kubelet/runtime"
)

// mirrorOf is the UID of the static pod of which a pod of the API is the mirror;
// empty if it is none.
func mirrorOf(pod *v1.Pod) types.UID { return types.UID(pod.Annotations[v1.MirrorPodAnnotationKey]) }

// runningUID is the UID under which the node runs a pod of the API.
func runningUID(pod *v1.Pod) types.UID {
	if uid := mirrorOf(pod); uid != "" {
		return uid
	}
	return pod.UID
}

// followManifests runs the pods of the manifests, and no longer those of files
// that have gone.
func (a *Agent) followManifests(ctx context.Context) error {
	select {
	case <-a.running:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w, err := inotify.Watch(a.manifests.Path, inotify.Closed|inotify.Moved)
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		a.applyManifests(nil, nil)
		select {
		case <-w.Changed:
		case <-a.staticGone:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// applyManifests starts the pods of new files and ends those of files that have
// gone. found is what the runtime has, mirrors what the API has of them, by their
// keys, when the agent begins. It is called by one goroutine at a time.
func (a *Agent) applyManifests(found map[types.UID]*runtime.Inventory, mirrors map[string]*v1.Pod) {
	if a.manifests == nil {
		return
	}
	pods, err := a.manifests.Load()
	if err != nil {
		a.o.Log.Warn("read manifests of static pods", "err", err)
		if pods == nil && errors.Is(err, os.ErrNotExist) {
			return // the directory is away: no reason to stop what runs
		}
	}
	want := map[string]bool{}
	for _, pod := range pods {
		key := cache.Key(pod.Namespace, pod.Name)
		want[key] = true
		old := a.staticActor(key)
		if old != nil && old.uid == pod.UID {
			continue
		}
		mirror := mirrors[key]
		if mirror != nil && mirrorOf(mirror) == pod.UID {
			pod = pod.DeepCopy()
			pod.Status = mirror.Status
		}
		act := newActor(a, pod, 0)
		act.o.Mirror = &podstep.Mirror{}
		act.sawMirror(mirror)
		a.mu.Lock()
		a.mu.statics[key] = act
		a.mu.Unlock()
		inv := found[pod.UID]
		delete(found, pod.UID)
		if old == nil {
			a.start(act, inv)
			continue
		}
		old.post((*actor).removeStatic)
		a.group.Go("next static pod", func(ctx context.Context) error {
			select {
			case <-old.done:
				contain.Run(a.o.Log, "start", key, func() { a.start(act, inv) })
			case <-ctx.Done():
			}
			return nil
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, act := range a.mu.statics {
		if !want[key] {
			act.post((*actor).removeStatic)
		}
	}
}

func (a *Agent) staticActor(key string) *actor {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.statics[key]
}

// removeStatic ends the pod: its file has gone.
func (x *actor) removeStatic() {
	if x.d.Pod.DeletionTimestamp != nil {
		return
	}
	pod := x.d.Pod.DeepCopy()
	now := metav1.Now().Rfc3339Copy()
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &now, pod.Spec.TerminationGracePeriodSeconds
	x.d.Pod = pod
}

// takeMirror tells the actor of a static pod what has become of its mirror. One
// that mirrors nothing is removed.
func (a *Agent) takeMirror(pod *v1.Pod, deleted bool) {
	act := a.staticActor(cache.Key(pod.Namespace, pod.Name))
	switch {
	case act != nil:
		if deleted {
			pod = nil
		}
		act.post(func(x *actor) { x.sawMirror(pod) })
	case !deleted:
		a.group.Go("orphaned mirror", func(ctx context.Context) error {
			name := pod.Namespace + "/" + pod.Name
			contain.Run(a.o.Log, "orphaned mirror", name, func() {
				if err := a.deleteMirror(ctx, pod); err != nil && ctx.Err() == nil {
					a.o.Log.Warn("delete mirror of a static pod that is gone", "pod", name, "err", err)
				}
			})
			return nil
		})
	}
}

func (a *Agent) deleteMirror(ctx context.Context, mirror *v1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	now := int64(0)
	err := a.pods.Delete(ctx, mirror.Namespace, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &mirror.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete mirror: %w", err)
	}
	return nil
}

// mirrorPod makes the API's image of a static pod, and tells it the pod's status.
type mirrorPod struct {
	a      *Agent
	pod    *v1.Pod
	mirror *v1.Pod // as written
}

func (w *mirrorPod) do(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiDeadline)
	defer cancel()
	a, pod := w.a, w.pod
	mirror, err := a.pods.Get(ctx, pod.Namespace, pod.Name)
	switch {
	case apierrors.IsNotFound(err):
		mirror = nil
	case err != nil:
		return fmt.Errorf("look for mirror: %w", err)
	case mirrorOf(mirror) == "":
		return errors.New("mirror static pod: another pod has its name")
	case mirror.DeletionTimestamp != nil || mirrorOf(mirror) != pod.UID:
		if err := a.deleteMirror(ctx, mirror); err != nil {
			return err
		}
		mirror = nil
	}
	if mirror == nil {
		node, err := a.node.Get(ctx)
		if err != nil {
			return fmt.Errorf("look for the owner of the mirror: %w", err)
		}
		if mirror, err = a.pods.Create(ctx, newMirror(pod, node)); err != nil {
			return fmt.Errorf("create mirror: %w", err)
		}
	}
	mirror = mirror.DeepCopy()
	mirror.Status = *pod.Status.DeepCopy() // what is written is handed over; the actor goes on with its own
	if w.mirror, err = a.pods.UpdateStatus(ctx, mirror); err != nil {
		return fmt.Errorf("write status of mirror: %w", err)
	}
	return nil
}

func (w *mirrorPod) note(x *actor, err error) {
	if err == nil {
		x.sawMirror(w.mirror)
		x.o.Mirror.Reported, x.o.Mirror.Written = w.mirror.UID, &w.pod.Status
	}
}

// sawMirror takes in what the API has of the mirror of a static pod; nil: none.
func (x *actor) sawMirror(mirror *v1.Pod) {
	m := x.o.Mirror
	if m.UID = ""; mirror != nil {
		m.UID, m.Of, m.Leaving = mirror.UID, mirrorOf(mirror), mirror.DeletionTimestamp != nil
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

func (w *keepStatus) note(x *actor, _ error) {
	pod := *x.d.Pod
	pod.Status = w.status
	x.d.Pod = &pod
}

// removeMirror takes the mirror of a static pod that has ended out of the API.
type removeMirror struct {
	a   *Agent
	pod *v1.Pod
}

func (w *removeMirror) do(ctx context.Context) error {
	mirror, err := w.a.pods.Get(ctx, w.pod.Namespace, w.pod.Name)
	if err == nil && mirrorOf(mirror) == w.pod.UID {
		err = w.a.deleteMirror(ctx, mirror)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

func (w *removeMirror) note(x *actor, err error) { x.d.Gone = err == nil }
