package claims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// Wish is what a claim asks of a volume.
type Wish struct {
	claim    *corev1.PersistentVolumeClaim
	class    string
	size     apiresource.Quantity
	selector labels.Selector
}

// WishOf reads a claim. It fails if the claim's selector is none.
func WishOf(c *corev1.PersistentVolumeClaim) (*Wish, error) {
	w := &Wish{claim: c, class: Class(c), size: c.Spec.Resources.Requests[corev1.ResourceStorage], selector: labels.Everything()}
	if c.Spec.Selector != nil {
		selector, err := metav1.LabelSelectorAsSelector(c.Spec.Selector)
		if err != nil {
			return nil, fmt.Errorf("error creating internal label selector for claim: %s/%s: %w", c.Namespace, c.Name, err)
		}
		w.selector = selector
	}
	return w, nil
}

// Why a volume that a person chose for a claim cannot be bound to it.
var (
	errTooSmall   = errors.New("requested PV is too small")
	errClass      = errors.New("storageClassName does not match")
	errAttributes = errors.New("volumeAttributesClassName does not match")
	errMode       = errors.New("incompatible volumeMode")
	errAccess     = errors.New("incompatible accessMode")
)

// Check says why a volume cannot be bound to the claim, although a person has
// chosen it. Labels do not matter.
func (w *Wish) Check(v *corev1.PersistentVolume) error { return w.check(v, VolumeClass(v)) }

func (w *Wish) check(v *corev1.PersistentVolume, class string) error {
	switch capacity := v.Spec.Capacity[corev1.ResourceStorage]; {
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", v.Name)
	case capacity.Cmp(w.size) < 0:
		return errTooSmall
	case class != w.class:
		return errClass
	case ptr.Deref(v.Spec.VolumeAttributesClassName, "") != ptr.Deref(w.claim.Spec.VolumeAttributesClassName, ""):
		return errAttributes
	case !SameMode(v, w.claim):
		return errMode
	case !w.access(v):
		return errAccess
	}
	return nil
}

// Kept reports whether a volume is reserved for the claim and suits it. Who reserves
// a volume need not name the claim's class.
func (w *Wish) Kept(v *corev1.PersistentVolume) bool {
	return Reserved(v, w.claim) && w.check(v, w.class) == nil
}

// Free reports whether a volume is nobody's, and suits the claim.
func (w *Wish) Free(v *corev1.PersistentVolume) bool {
	return v.Spec.ClaimRef == nil && v.Status.Phase == corev1.VolumeAvailable && w.Check(v) == nil && w.selector.Matches(labels.Set(v.Labels))
}

// SameMode reports whether a volume is what the claim wants it as: a file system
// or a device.
func SameMode(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	return ptr.Deref(v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == ptr.Deref(c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
}

func (w *Wish) access(v *corev1.PersistentVolume) bool {
	for _, mode := range w.claim.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, mode) {
			return false
		}
	}
	return true
}

// Compare is negative if the claim should rather have a than b, both of which
// suit it: what can do no more than needed, and then the smallest.
func Compare(a, b *corev1.PersistentVolume) int {
	x, y := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
	return cmp.Or(cmp.Compare(len(a.Spec.AccessModes), len(b.Spec.AccessModes)), x.Cmp(y), cmp.Compare(a.Name, b.Name))
}
