package podspec

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// ValidateClaimSpec checks the spec of a claim, also where it is a template.
func ValidateClaimSpec(errs *resource.Errors, s *corev1.PersistentVolumeClaimSpec) {
	if len(s.AccessModes) == 0 {
		errs.Required("accessModes", "at least 1 access mode is required")
	}
	check.LabelSelector(errs, "selector", s.Selector)
	ValidateAccessModes(errs, s.AccessModes)
	if size, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs.Required("resources[storage]", "")
	} else {
		check.Positive(errs, "resources[storage]", size)
	}
	if class := ptr.Deref(s.StorageClassName, ""); class != "" {
		check.DNSSubdomain(errs, "storageClassName", class)
	}
	if s.VolumeMode != nil {
		check.OneOf(errs, "volumeMode", *s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
	if r := s.DataSource; r != nil {
		validateDataSource(errs.At("dataSource"), corev1.TypedObjectReference{APIGroup: r.APIGroup, Kind: r.Kind, Name: r.Name})
	}
	if r := s.DataSourceRef; r != nil {
		validateDataSource(errs.At("dataSourceRef"), *r)
	}
	if a, b := s.DataSource, s.DataSourceRef; a != nil && b != nil {
		if a.Kind != b.Kind || a.Name != b.Name || ptr.Deref(a.APIGroup, "") != ptr.Deref(b.APIGroup, "") {
			errs.Invalid("", "spec.dataSource", "must match dataSourceRef")
		}
	}
	if class := ptr.Deref(s.VolumeAttributesClassName, ""); class != "" {
		check.DNSSubdomain(errs, "volumeAttributesClassName", class)
	}
}

func ValidateAccessModes(errs *resource.Errors, modes []corev1.PersistentVolumeAccessMode) {
	alone, others := false, false
	for _, mode := range modes {
		check.OneOf(errs, "accessModes", mode, corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)
		alone = alone || mode == corev1.ReadWriteOncePod
		others = others || mode == corev1.ReadOnlyMany || mode == corev1.ReadWriteMany || mode == corev1.ReadWriteOnce
	}
	if alone && others {
		errs.Forbidden("accessModes", "may not use ReadWriteOncePod with other access modes")
	}
}

func validateDataSource(errs *resource.Errors, r corev1.TypedObjectReference) {
	check.Required(errs, "name", r.Name)
	check.Required(errs, "kind", r.Kind)
	group := ptr.Deref(r.APIGroup, "")
	if group == "" && r.Kind != "PersistentVolumeClaim" {
		errs.Invalid("", r.Kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
	}
	if group != "" {
		check.DNSSubdomain(errs, "apiGroup", group)
	}
}
