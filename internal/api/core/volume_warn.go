package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
)

// oldClass is what is said of the annotation that was the class once.
const oldClass = `deprecated since v1.8; use "storageClassName" attribute instead`

func warnVolume(v, _ *corev1.PersistentVolume) []string {
	var w check.Warnings
	if _, there := v.Annotations[corev1.BetaStorageClassAnnotation]; there {
		w.Add("metadata.annotations[%s]: %s", corev1.BetaStorageClassAnnotation, oldClass)
	}
	if _, there := v.Annotations[corev1.MountOptionAnnotation]; there {
		w.Add(`metadata.annotations[%s]: deprecated since v1.31; use "mountOptions" attribute instead`, corev1.MountOptionAnnotation)
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		for i := range a.Required.NodeSelectorTerms {
			w = append(w, podspec.WarnTerm(&a.Required.NodeSelectorTerms[i], fmt.Sprintf("spec.nodeAffinity.required.nodeSelectorTerms[%d]", i))...)
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		w.Add("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.CephFS != nil:
		w.Add("spec.cephfs: deprecated in v1.28, non-functional in v1.31+")
	case s.PhotonPersistentDisk != nil:
		w.Add("spec.photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+")
	case s.RBD != nil:
		w.Add("spec.rbd: deprecated in v1.28, non-functional in v1.31+")
	case s.ScaleIO != nil:
		w.Add("spec.scaleIO: deprecated in v1.16, non-functional in v1.22+")
	case s.StorageOS != nil:
		w.Add("spec.storageOS: deprecated in v1.22, non-functional in v1.25+")
	case s.Glusterfs != nil:
		w.Add("spec.glusterfs: deprecated in v1.25, non-functional in v1.26+")
	}
	return w
}

func warnClaim(c, _ *corev1.PersistentVolumeClaim) []string {
	var w check.Warnings
	if _, there := c.Annotations[corev1.BetaStorageClassAnnotation]; there {
		w.Add("metadata.annotations[%s]: %s", corev1.BetaStorageClassAnnotation, oldClass)
	}
	w.Fractions("spec.resources.requests", c.Spec.Resources.Requests)
	w.Fractions("spec.resources.limits", c.Spec.Resources.Limits)
	return w
}
