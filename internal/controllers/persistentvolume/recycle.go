package persistentvolume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
)

const (
	// recycler, and the name of a volume, is the name of the pod that empties the volume.
	recycler = "recycler-for-"
	// recycleLook is how often the events of a pod are looked at that empties a volume: no cache has them for this.
	recycleLook = 10 * time.Second
	// recycleAgain is how long after a failure it is tried again to empty a volume.
	recycleAgain = time.Minute
)

// recycling is how far it is with emptying a volume. It begins anew after a restart: whose a pod is that is there then nobody knows, and
// one that somebody else has made would leave the volume as it is.
type recycling struct {
	namespace string
	pod       types.UID           // that empties it; empty: none does
	again     time.Time           // after a failure
	told      map[types.UID]int32 // which of the pod's events the volume has, and how often each had happened then
}

// byRecycler wakes the volume that a pod empties, and those that are to be emptied when no pod has them any more.
func byRecycler(k *controller.Kit, p *corev1.Pod) (keys []string) {
	if name, ok := strings.CutPrefix(p.Name, recycler); ok {
		keys = append(keys, volumeKey+name)
	}
	for i := range p.Spec.Volumes {
		claim := p.Spec.Volumes[i].PersistentVolumeClaim
		if claim == nil {
			continue
		}
		for _, v := range controller.For(k, core.PersistentVolumes).ByIndex(core.IndexClaim, cache.Key(p.Namespace, claim.ClaimName)) {
			if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
				keys = append(keys, volumeKey+v.Name)
			}
		}
	}
	return keys
}

// recycle has a pod empty a volume that its claim has left, and then lets others have it.
func (b *binder) recycle(ctx context.Context, v *corev1.PersistentVolume) (controller.Next, error) {
	want, err := b.o.recycler(v)
	switch {
	case err != nil:
		return controller.After(recycleAgain), b.markFailed(ctx, v, "VolumeFailedRecycle", "Recycle failed: "+err.Error())
	case want == nil:
		return controller.Done, b.markFailed(ctx, v, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
	}
	is := b.recycling[v.Name]
	if is == nil {
		is = &recycling{namespace: want.Namespace}
		b.recycling[v.Name] = is
	}
	if wait := time.Until(is.again); wait > 0 {
		return controller.After(wait), nil
	}
	if is.pod == "" {
		return controller.Done, b.beginRecycling(ctx, v, is, want)
	}
	if err := b.tellOfRecycler(ctx, v, is); err != nil {
		return controller.Done, err
	}
	p, ok := b.pods.Get(is.namespace, want.Name)
	switch {
	case !ok || p.UID != is.pod:
		return b.notRecycled(ctx, v, is, "recycler pod was deleted")
	case p.Status.Phase == corev1.PodSucceeded:
		if err := b.removeRecycler(ctx, p); err != nil {
			return controller.Done, err
		}
		delete(b.recycling, v.Name)
		b.events.Event(v, corev1.EventTypeNormal, "VolumeRecycled", "Volume recycled")
		return controller.Done, b.giveBack(ctx, v)
	case p.Status.Phase == corev1.PodFailed:
		why := p.Status.Message
		if why == "" {
			why = "pod failed, pod.Status.Message unknown."
		}
		return b.notRecycled(ctx, v, is, why)
	}
	return controller.After(recycleLook), nil // what becomes of the pod brings it back sooner
}

// tellOfRecycler gives the volume the events of the pod that empties it.
func (b *binder) tellOfRecycler(ctx context.Context, v *corev1.PersistentVolume, is *recycling) error {
	list, err := b.told.List(ctx, is.namespace, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(is.pod)})
	if err != nil {
		return fmt.Errorf("list events of the pod that empties volume %s: %w", v.Name, err)
	}
	slices.SortStableFunc(list, func(x, y *corev1.Event) int { return x.LastTimestamp.Compare(y.LastTimestamp.Time) })
	for _, e := range list {
		if before, ok := is.told[e.UID]; !ok || before < e.Count {
			is.told[e.UID] = e.Count
			b.events.Event(v, e.Type, "RecyclerPod", "Recycler pod: "+e.Message)
		}
	}
	return nil
}

// beginRecycling makes the pod that empties a volume, unless pods may still use that.
func (b *binder) beginRecycling(ctx context.Context, v *corev1.PersistentVolume, is *recycling, want *corev1.Pod) error {
	ref := v.Spec.ClaimRef
	var users []string
	for _, p := range b.pods.ByIndex(core.IndexClaim, cache.Key(ref.Namespace, ref.Name)) {
		if p.Spec.NodeName != "" && !core.PodTerminal(p) {
			users = append(users, p.Namespace+"/"+p.Name)
		}
	}
	if len(users) > 0 {
		slices.Sort(users)
		b.events.Event(v, corev1.EventTypeNormal, "VolumeFailedRecycle", "Volume is used by pods: "+strings.Join(users, ","))
		return nil // their end brings it back
	}
	p, err := b.pods.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		if p, ok := b.pods.Get(want.Namespace, want.Name); ok {
			return b.removeRecycler(ctx, p) // whose end brings it back
		}
		return errors.New("another pod has the name of the volume's recycler")
	}
	if err != nil {
		return fmt.Errorf("create the pod that empties volume %s: %w", v.Name, err)
	}
	is.pod, is.told = p.UID, map[types.UID]int32{}
	return nil
}

// notRecycled says why a volume is not empty, and has it tried again later.
func (b *binder) notRecycled(ctx context.Context, v *corev1.PersistentVolume, is *recycling, why string) (controller.Next, error) {
	if err := b.endRecycling(ctx, v.Name); err != nil {
		return controller.Done, err
	}
	is.pod, is.again = "", time.Now().Add(recycleAgain)
	return controller.After(recycleAgain), b.markFailed(ctx, v, "VolumeFailedRecycle", "Recycle failed: failed to recycle volume: "+why)
}

// endRecycling removes the pod that empties a volume, if there is one.
func (b *binder) endRecycling(ctx context.Context, volume string) error {
	is := b.recycling[volume]
	if is == nil || is.pod == "" {
		return nil
	}
	p, ok := b.pods.Get(is.namespace, recycler+volume)
	if !ok || p.UID != is.pod {
		return nil
	}
	return b.removeRecycler(ctx, p)
}

func (b *binder) removeRecycler(ctx context.Context, p *corev1.Pod) error {
	if err := b.pods.DeleteByUID(ctx, p); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the pod that empties a volume: %w", err)
	}
	return nil
}
