package claims

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Annotations of claims and volumes.
const (
	// BindCompleted, on a claim: it was bound once, and what is missing now is lost.
	BindCompleted = "pv.kubernetes.io/bind-completed"
	// BoundByController, on both: the reference to the other was not written by a person.
	BoundByController = "pv.kubernetes.io/bound-by-controller"
	// SelectedNode, on a claim: the node for which the volume is to be made.
	SelectedNode = "volume.kubernetes.io/selected-node"
	// Provisioner, on a claim: who is to make the volume; OldProvisioner is what that was called.
	Provisioner    = "volume.kubernetes.io/storage-provisioner"
	OldProvisioner = "volume.beta.kubernetes.io/storage-provisioner"
	// ProvisionedBy, on a volume: who has made it.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
	// Resizer, on a claim: who is to make the volume grow.
	Resizer = "volume.kubernetes.io/storage-resizer"
	// PreResizeCapacity, on a volume: how large it is for its claim as long as its file system does not fill it.
	PreResizeCapacity = "volume.alpha.kubernetes.io/pre-resize-capacity"
	// MigratedTo, on both: the CSI driver that stands in for what was built in once.
	MigratedTo = "pv.kubernetes.io/migrated-to"
)

// NoProvisioner is the provisioner of classes whose volumes people make.
const NoProvisioner = "kubernetes.io/no-provisioner"

// LocalDriver is the provisioner and CSI driver of volumes that are directories of
// a node, which the node agent makes and removes itself. LocalNode is the attribute of
// such a volume that names its node, and the field by which that node finds it.
const (
	LocalDriver = "local.kemudi.io"
	LocalNode   = "kemudi.io/node"
)

// LocalTo is the node on which a volume of the [LocalDriver] lies; empty: it is
// none of those.
func LocalTo(v *corev1.PersistentVolume) string {
	if v.Spec.CSI == nil || v.Spec.CSI.Driver != LocalDriver {
		return ""
	}
	return v.Spec.CSI.VolumeAttributes[LocalNode]
}

// Finalizers that hold up the deletion of what is in use.
const (
	ProtectClaim  = "kubernetes.io/pvc-protection"
	ProtectVolume = "kubernetes.io/pv-protection"
	// ProtectAttributes is of classes of attributes.
	ProtectAttributes = "kubernetes.io/vac-protection"
	// DeletedByDriver is of volumes whose data somebody outside of the control plane is to delete first.
	DeletedByDriver = "external-provisioner.volume.kubernetes.io/finalizer"
	// DeletedInTree is of volumes that a controller was to delete whose plugin was built in.
	DeletedInTree = "kubernetes.io/pv-controller"
)

// Yes is the value of annotations that have none.
const Yes = "yes"

// Class is the storage class of a claim; empty: it has none.
func Class(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return ptr.Deref(c.Spec.StorageClassName, "")
}

// SaysClass reports whether a claim says of what class it is, be it none.
func SaysClass(c *corev1.PersistentVolumeClaim) bool {
	_, ok := c.Annotations[corev1.BetaStorageClassAnnotation]
	return ok || c.Spec.StorageClassName != nil
}

// VolumeClass is the storage class of a volume; empty: it has none.
func VolumeClass(v *corev1.PersistentVolume) string {
	if class, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return v.Spec.StorageClassName
}

// Of are the names of the claims that a pod uses, with the volumes made for it alone.
func Of(p *corev1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		if name := OfVolume(p, &p.Spec.Volumes[i]); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// OfVolume is the name of the claim that a pod's volume stands for; empty: none.
func OfVolume(p *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return p.Name + "-" + v.Name
	}
	return ""
}

// UsedBy reports whether a volume of the pod is the claim. One of that name which should have been made for the pod, and
// was not, is none.
func UsedBy(c *corev1.PersistentVolumeClaim, p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return OfVolume(p, &v) == c.Name && (v.Ephemeral == nil || MadeFor(c, p))
	})
}

// MadeFor reports whether a claim was made for this pod, and not by somebody else
// under the same name.
func MadeFor(c *corev1.PersistentVolumeClaim, p *corev1.Pod) bool {
	for _, ref := range c.OwnerReferences {
		if ref.Controller != nil && *ref.Controller {
			return ref.UID == p.UID
		}
	}
	return false
}

// Completed reports whether a claim was bound once.
func Completed(c *corev1.PersistentVolumeClaim) bool {
	_, ok := c.Annotations[BindCompleted]
	return ok
}

// Bound reports whether a claim has its volume.
func Bound(c *corev1.PersistentVolumeClaim) bool {
	return c.Spec.VolumeName != "" && (Completed(c) || c.Status.Phase == corev1.ClaimBound)
}

// Reserved reports whether a volume is for this claim, and for no other of its name.
func Reserved(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == c.Name && ref.Namespace == c.Namespace && (ref.UID == "" || ref.UID == c.UID)
}

// Bind returns a copy of a volume that refers to a claim; nil if the volume does
// that already.
func Bind(v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	mine := Reserved(v, c)
	if mine && v.Spec.ClaimRef.UID == c.UID {
		return nil
	}
	v = v.DeepCopy()
	if !mine {
		if v.Annotations == nil {
			v.Annotations = map[string]string{}
		}
		v.Annotations[BoundByController] = Yes
	}
	v.Spec.ClaimRef = &corev1.ObjectReference{
		Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion,
	}
	return v
}
