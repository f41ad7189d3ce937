package podspec

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// validateMounts checks where a container sees volumes as directories.
func validateMounts(errs *resource.Errors, c *corev1.Container, volumes map[string]*corev1.Volume) {
	for i := range c.VolumeMounts {
		m, at := &c.VolumeMounts[i], errs.At("volumeMounts[%d]", i)
		check.Required(at, "name", m.Name)
		if volumes[m.Name] == nil {
			at.NotFound("name", m.Name)
		}
		check.Required(at, "mountPath", m.MountPath)
		samePath := func(o corev1.VolumeMount) bool { return o.MountPath == m.MountPath }
		if slices.ContainsFunc(c.VolumeMounts[:i], samePath) {
			at.Invalid("mountPath", m.MountPath, "must be unique")
		}
		for j := range c.VolumeDevices {
			if c.VolumeDevices[j].Name == m.Name {
				at.Invalid("name", m.Name, "must not already exist in volumeDevices")
			}
			if c.VolumeDevices[j].DevicePath == m.MountPath {
				at.Invalid("mountPath", m.MountPath, "must not already exist as a path in volumeDevices")
			}
		}
		validateSubPath(errs, at, m)
		validatePropagation(errs, c, m)
	}
}

// validateSubPath checks which part of the volume is mounted. list is where the
// paths of all mounts are, at is the one mount.
func validateSubPath(list, at *resource.Errors, m *corev1.VolumeMount) {
	if m.SubPath != "" {
		check.DescendingPath(list, "volumeMounts.subPath", m.SubPath)
	}
	if m.SubPathExpr == "" {
		return
	}
	if m.SubPath != "" {
		at.Invalid("subPathExpr", m.SubPathExpr, "subPathExpr and subPath are mutually exclusive")
	}
	check.DescendingPath(list, "volumeMounts.subPathExpr", m.SubPathExpr)
}

// validatePropagation checks whether mounts made inside or outside show on the
// other side, and whether those below are read-only too.
func validatePropagation(list *resource.Errors, c *corev1.Container, m *corev1.VolumeMount) {
	if m.MountPropagation != nil {
		mode := *m.MountPropagation
		check.OneOf(list, "volumeMounts.mountPropagation", mode, corev1.MountPropagationBidirectional,
			corev1.MountPropagationHostToContainer, corev1.MountPropagationNone)
		if mode == corev1.MountPropagationBidirectional && !isPrivileged(c) {
			list.Forbidden("volumeMounts.mountPropagation", "Bidirectional mount propagation is available only to privileged containers")
		}
	}
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == corev1.RecursiveReadOnlyDisabled {
		return
	}
	mode := *m.RecursiveReadOnly
	if mode != corev1.RecursiveReadOnlyEnabled && mode != corev1.RecursiveReadOnlyIfPossible {
		check.OneOf(list, "volumeMounts.recursiveReadOnly", mode, corev1.RecursiveReadOnlyDisabled,
			corev1.RecursiveReadOnlyEnabled, corev1.RecursiveReadOnlyIfPossible)
		return
	}
	if !m.ReadOnly {
		list.Forbidden("volumeMounts.recursiveReadOnly", "may only be specified when readOnly is true")
	}
	if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
		list.Forbidden("volumeMounts.recursiveReadOnly", "may only be specified when mountPropagation is None or not specified")
	}
}

func isPrivileged(c *corev1.Container) bool {
	return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
}

// validateDevices checks where a container sees volumes as block devices.
func validateDevices(errs *resource.Errors, c *corev1.Container, volumes map[string]*corev1.Volume) {
	for i := range c.VolumeDevices {
		d, at := &c.VolumeDevices[i], errs.At("volumeDevices[%d]", i)
		earlier := c.VolumeDevices[:i]
		check.Required(at, "name", d.Name)
		if d.Name != "" && slices.ContainsFunc(earlier, func(o corev1.VolumeDevice) bool { return o.Name == d.Name }) {
			at.Invalid("name", d.Name, "must be unique")
		}
		switch v := volumes[d.Name]; {
		case v == nil:
			at.NotFound("name", d.Name)
		case v.PersistentVolumeClaim == nil && v.Ephemeral == nil:
			at.Invalid("name", d.Name, "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode")
		}
		check.Required(at, "devicePath", d.DevicePath)
		if slices.ContainsFunc(earlier, func(o corev1.VolumeDevice) bool { return o.DevicePath == d.DevicePath }) {
			at.Invalid("devicePath", d.DevicePath, "must be unique")
		}
		if check.HasBacksteps(d.DevicePath) {
			at.Invalid("devicePath", d.DevicePath, "can not contain backsteps ('..')")
		}
		for j := range c.VolumeMounts {
			if c.VolumeMounts[j].Name == d.Name {
				at.Invalid("name", d.Name, "must not already exist in volumeMounts")
			}
			if c.VolumeMounts[j].MountPath == d.DevicePath {
				at.Invalid("devicePath", d.DevicePath, "must not already exist as a path in volumeMounts")
			}
		}
	}
}
