package claims

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Attributes are the classes of attributes that a claim asks for, has, and is being given, some of them perhaps more than once.
func Attributes(c *corev1.PersistentVolumeClaim) (names []string) {
	for _, name := range []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName} {
		if ptr.Deref(name, "") != "" {
			names = append(names, *name)
		}
	}
	if m := c.Status.ModifyVolumeStatus; m != nil && m.TargetVolumeAttributesClassName != "" {
		names = append(names, m.TargetVolumeAttributesClassName)
	}
	return names
}

// VolumeAttributes is the class of attributes that a volume has; none: it has none.
func VolumeAttributes(v *corev1.PersistentVolume) []string {
	if name := ptr.Deref(v.Spec.VolumeAttributesClassName, ""); name != "" {
		return []string{name}
	}
	return nil
}
