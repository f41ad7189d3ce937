package attachdetach

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/storage"
	"github.com/kemudi/kemudi/internal/resource"
)

// tries is how often a node's status is written anew when others write it at the same time.
const tries = 5

// node tells a node which volumes are attached to it.
func (r *reconciler) node(ctx context.Context, name string) error {
	n, ok := r.nodes.Get("", name)
	if !ok || slices.Equal(n.Status.VolumesAttached, r.attached(n)) {
		return nil
	}
	_, err := r.report(ctx, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// report writes into a node's status which volumes are attached to it, and returns the node as
// it is after that.
func (r *reconciler) report(ctx context.Context, name string) (*corev1.Node, error) {
	for try := 1; ; try++ {
		n, err := r.nodes.Live(ctx, "", name)
		if err != nil {
			return nil, fmt.Errorf("read node %s: %w", name, err)
		}
		attached := r.attached(n)
		if slices.Equal(n.Status.VolumesAttached, attached) {
			return n, nil
		}
		n = n.DeepCopy()
		n.Status.VolumesAttached = attached
		n, err = r.nodes.UpdateStatus(ctx, n)
		if err == nil || !apierrors.IsConflict(err) || try == tries {
			if err != nil {
				err = fmt.Errorf("write what is attached to node %s: %w", name, err)
			}
			return n, err
		}
	}
}

// attached are the volumes that a node may use: what is about to be taken away is not among them (A3).
func (r *reconciler) attached(n *corev1.Node) (list []corev1.AttachedVolume) {
	for _, a := range r.attachments.ByIndex(storage.IndexNode, n.Name) {
		if phaseOf(a) != done || r.leaves(a.Name) {
			continue
		}
		if v := volumeOf(r.volumes, a); v != nil {
			list = append(list, corev1.AttachedVolume{Name: csi.Name(a.Spec.Attacher, v.Spec.CSI.VolumeHandle)})
		} else if name, ok := told(n, a); ok {
			list = append(list, corev1.AttachedVolume{Name: name})
		}
	}
	slices.SortFunc(list, func(a, b corev1.AttachedVolume) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// told is what a node calls the volume of an attachment of this controller's (A4) that it was told of, or uses; ok is false
// if there is none.
func told(n *corev1.Node, a *storagev1.VolumeAttachment) (name corev1.UniqueVolumeName, ok bool) {
	names := slices.Clone(n.Status.VolumesInUse)
	for _, v := range n.Status.VolumesAttached {
		names = append(names, v.Name)
	}
	i := slices.IndexFunc(names, func(name corev1.UniqueVolumeName) bool {
		driver, handle, ok := csi.Split(name)
		return ok && a.Name == storage.AttachmentName(handle, driver, n.Name)
	})
	if i < 0 {
		return "", false
	}
	return names[i], true
}

// stray takes away an attachment whose volume is gone, when its node does not use it.
func (r *reconciler) stray(ctx context.Context, key string) error {
	a, ok := r.attachments.Get("", key)
	if !ok || a.DeletionTimestamp != nil {
		r.left(key)
		return nil
	}
	if a.Spec.Source.PersistentVolumeName == nil {
		return nil
	}
	if err := r.volumes.WaitRev(ctx, resource.Revision(a)); err != nil { // the volume may be newer than what is known of volumes
		return fmt.Errorf("wait for the volume of attachment %s: %w", a.Name, err)
	}
	n, ok := r.nodes.Get("", a.Spec.NodeName)
	if _, there := r.volumes.Get("", *a.Spec.Source.PersistentVolumeName); there || !ok {
		return nil
	}
	if name, ok := told(n, a); ok && !slices.Contains(n.Status.VolumesInUse, name) {
		return r.detach(ctx, name, a, detach)
	}
	return nil
}

// leave notes that an attachment is being taken away, left that it is gone, or stays after all.
func (r *reconciler) leave(attachment string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.leaving[attachment] = true
}

func (r *reconciler) left(attachment string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.leaving, attachment)
}

func (r *reconciler) leaves(attachment string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leaving[attachment]
}
