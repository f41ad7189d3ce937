package persistentvolume

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
)

// migrated returns a copy of a volume of a plugin that was built in once, changed so that the CSI driver that stands in
// for the plugin sees to it: the annotation names the driver, and the finalizer of the plugin's deletion is gone. It is
// nil if nothing is to be changed.
func migrated(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	by := v.Annotations[claims.ProvisionedBy]
	annotations, changed := migratedTo(v.Annotations, by)
	if _, ok := csi.Driver(by); ok && slices.Contains(v.Finalizers, claims.DeletedInTree) {
		changed = true
	}
	if !changed {
		return nil
	}
	v = v.DeepCopy()
	v.Annotations = annotations
	v.Finalizers = slices.DeleteFunc(v.Finalizers, func(f string) bool { return f == claims.DeletedInTree })
	return v
}

// handedOver returns a copy of a claim that names the driver which stands in for the provisioner that it was
// told to wait for; nil if it is as it should be.
func handedOver(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaim {
	annotations, changed := migratedTo(c.Annotations, cmp.Or(c.Annotations[claims.Provisioner], c.Annotations[claims.OldProvisioner]))
	if !changed {
		return nil
	}
	c = c.DeepCopy()
	c.Annotations = annotations
	return c
}

// migratedTo brings the annotation up to date that names the driver which stands in for the provisioner by. Objects that
// were not provisioned keep their annotations.
func migratedTo(annotations map[string]string, by string) (fresh map[string]string, changed bool) {
	driver, _ := csi.Driver(by)
	if by == "" || annotations[claims.MigratedTo] == driver {
		return annotations, false
	}
	fresh = maps.Clone(annotations)
	if fresh[claims.MigratedTo] = driver; driver == "" {
		delete(fresh, claims.MigratedTo)
	}
	return fresh, true
}
