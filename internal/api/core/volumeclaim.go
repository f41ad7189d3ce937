package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// PersistentVolumeClaims is what pods ask for in storage that outlives them.
var PersistentVolumeClaims = resource.Define(resource.Spec[*corev1.PersistentVolumeClaim]{
	Names:    resource.Names{Version: "v1", Kind: "PersistentVolumeClaim", Plural: "persistentvolumeclaims", Short: []string{"pvc"}, Namespaced: true},
	Deletion: resource.Deletion[*corev1.PersistentVolumeClaim]{AnswersDeleted: true},
	Default:  defaultClaim, Prepare: prepareClaim, Validate: validateClaim, Warn: warnClaim,
	Columns: claimColumns,
	Fields:  map[string]func(*corev1.PersistentVolumeClaim) string{"name": func(c *corev1.PersistentVolumeClaim) string { return c.Name }},
	Index: map[string]func(*corev1.PersistentVolumeClaim) []string{
		IndexUnbound: func(c *corev1.PersistentVolumeClaim) []string {
			if claims.Completed(c) {
				return nil
			}
			return []string{claims.Class(c)}
		},
		IndexVolume: func(c *corev1.PersistentVolumeClaim) []string {
			if c.Spec.VolumeName == "" {
				return nil
			}
			return []string{c.Spec.VolumeName}
		},
		IndexAttributes: claims.Attributes,
	},
	Sub: []resource.Sub[*corev1.PersistentVolumeClaim]{{
		Name:  "status",
		Merge: func(c, old *corev1.PersistentVolumeClaim) { c.Spec = old.Spec }, Validate: validateClaimStatus,
	}},
})

// Indexes of PersistentVolumeClaims.
const (
	IndexUnbound = "unbound" // the class of those that were never bound
	IndexVolume  = "volume"  // the name of the volume that they say is theirs

	IndexAttributes = "attributes" // the class of attributes that they have or ask for; of volumes: that they have
)

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	check.SetIfZero(&c.Status.Phase, corev1.ClaimPending)
	check.RoundUp(c.Status.Capacity)
	podspec.DefaultClaimSpec(&c.Spec)
}

// prepareClaim keeps the status, and makes the two fields for a source of data
// say the same.
func prepareClaim(c, old *corev1.PersistentVolumeClaim) {
	c.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
	if old != nil {
		c.Status = old.Status
	}
	s := &c.Spec
	if s.DataSourceRef != nil {
		s.DataSourceRef.Namespace = nil // other namespaces: alpha
	}
	switch {
	case s.DataSource != nil && s.DataSourceRef == nil:
		s.DataSourceRef = &corev1.TypedObjectReference{APIGroup: s.DataSource.APIGroup, Kind: s.DataSource.Kind, Name: s.DataSource.Name}
	case s.DataSource == nil && s.DataSourceRef != nil && isClaimOrSnapshot(s.DataSourceRef):
		s.DataSource = &corev1.TypedLocalObjectReference{APIGroup: s.DataSourceRef.APIGroup, Kind: s.DataSourceRef.Kind, Name: s.DataSourceRef.Name}
	}
}

// isClaimOrSnapshot reports whether the older field can hold a reference too.
func isClaimOrSnapshot(r *corev1.TypedObjectReference) bool {
	switch ptr.Deref(r.APIGroup, "") {
	case "":
		return r.Kind == "PersistentVolumeClaim"
	case "snapshot.storage.k8s.io":
		return r.Kind == "VolumeSnapshot"
	}
	return false
}

func validateClaim(c, old *corev1.PersistentVolumeClaim, errs *resource.Errors) {
	podspec.ValidateClaimSpec(errs.At("spec"), &c.Spec)
	if old != nil {
		validateClaimChange(c, old, errs)
	}
}

// validateClaimChange lets a claim be bound once and, when it is bound, become
// larger or of another class of attributes.
func validateClaimChange(c, old *corev1.PersistentVolumeClaim, errs *resource.Errors) {
	now, was := c.Spec, old.Spec
	if was.VolumeName == "" {
		was.VolumeName = now.VolumeName
	}
	oldClass, hadClass := old.Annotations[corev1.BetaStorageClassAnnotation]
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok != hadClass || class != oldClass {
		moved := hadClass && !ok && was.StorageClassName == nil && ptr.Deref(now.StorageClassName, "") == oldClass
		if !moved {
			errs.Invalid("metadata.annotations."+corev1.BetaStorageClassAnnotation, class, "field is immutable")
		}
	}
	if was.StorageClassName == nil && now.StorageClassName != nil && (!hadClass || *now.StorageClassName == oldClass) {
		was.StorageClassName = now.StorageClassName
	}
	if c.Status.Phase == corev1.ClaimBound {
		now.Resources.Requests = maps.Clone(now.Resources.Requests)
		if size, ok := was.Resources.Requests[corev1.ResourceStorage]; ok && now.Resources.Requests != nil {
			now.Resources.Requests[corev1.ResourceStorage] = size
		}
		if now.VolumeAttributesClassName != nil {
			now.VolumeAttributesClassName = was.VolumeAttributesClassName
		}
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs.Forbidden("spec", fmt.Sprintf("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n%v",
			diff.Diff(was, now)))
	}
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(has) <= 0 {
		errs.Forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
	}
	if !ptr.Equal(c.Spec.VolumeMode, old.Spec.VolumeMode) {
		errs.Immutable("volumeMode", c.Spec.VolumeMode)
	}
	if attrs := c.Spec.VolumeAttributesClassName; old.Spec.VolumeAttributesClassName != nil {
		if attrs == nil {
			errs.Forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")
		} else if *attrs == "" {
			errs.Forbidden("spec.volumeAttributesClassName", "update from non-nil value to an empty string is forbidden")
		}
	}
}

func validateClaimStatus(c, _ *corev1.PersistentVolumeClaim, errs *resource.Errors) {
	for name, q := range c.Status.Capacity {
		if q.Sign() < 0 {
			errs.At("status.capacity[%s]", name).Invalid("", q.Value(), "must be a valid resource quantity")
		}
	}
	for name, status := range c.Status.AllocatedResourceStatuses {
		checkClaimResource(errs, "status.allocatedResourceStatus", name)
		check.OneOf(errs, "status.allocatedResourceStatus", status, corev1.PersistentVolumeClaimControllerResizeInfeasible,
			corev1.PersistentVolumeClaimControllerResizeInProgress, corev1.PersistentVolumeClaimNodeResizeInfeasible,
			corev1.PersistentVolumeClaimNodeResizeInProgress, corev1.PersistentVolumeClaimNodeResizePending)
	}
	for name, q := range c.Status.AllocatedResources {
		checkClaimResource(errs, "status.allocatedResources", name)
		if q.Sign() < 0 {
			errs.At("status.allocatedResources[%s]", name).Invalid("", q.Value(), "must be a valid resource quantity")
		}
	}
}

func checkClaimResource(errs *resource.Errors, at string, name corev1.ResourceName) {
	check.QualifiedName(errs, at, string(name))
	if check.IsNativeResource(name) && name != corev1.ResourceStorage {
		resource.NotSupported(errs, at, name, corev1.ResourceStorage)
	}
}

var claimColumns = []resource.Column[*corev1.PersistentVolumeClaim]{
	{
		Name: "Status", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["phase"],
		Value: func(c *corev1.PersistentVolumeClaim) any {
			if c.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(c.Status.Phase)
		},
	},
	{
		Name: "Volume", Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeName"],
		Value: func(c *corev1.PersistentVolumeClaim) any { return c.Spec.VolumeName },
	},
	{
		Name: "Capacity", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["capacity"],
		Value: func(c *corev1.PersistentVolumeClaim) any {
			if c.Spec.VolumeName == "" {
				return ""
			}
			q := c.Status.Capacity[corev1.ResourceStorage]
			return q.String()
		},
	},
	{
		Name: "Access Modes", Description: corev1.PersistentVolumeClaimStatus{}.SwaggerDoc()["accessModes"],
		Value: func(c *corev1.PersistentVolumeClaim) any {
			if c.Spec.VolumeName == "" {
				return ""
			}
			return formatAccessModes(c.Status.AccessModes)
		},
	},
	{
		Name: "StorageClass", Description: "StorageClass of the pvc",
		Value: func(c *corev1.PersistentVolumeClaim) any { return claims.Class(c) },
	},
	{
		Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pvc",
		Value: func(c *corev1.PersistentVolumeClaim) any { return orUnset(c.Spec.VolumeAttributesClassName) },
	},
	{
		Name: "VolumeMode", Priority: 1, Description: corev1.PersistentVolumeClaimSpec{}.SwaggerDoc()["volumeMode"],
		Value: func(c *corev1.PersistentVolumeClaim) any { return orUnset((*string)(c.Spec.VolumeMode)) },
	},
}

func orUnset(s *string) string {
	if s == nil {
		return "<unset>"
	}
	return *s
}

// formatAccessModes prints modes by their initials, each once.
func formatAccessModes(modes []corev1.PersistentVolumeAccessMode) string {
	var texts []string
	for _, m := range []struct {
		mode corev1.PersistentVolumeAccessMode
		text string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if slices.Contains(modes, m.mode) {
			texts = append(texts, m.text)
		}
	}
	return strings.Join(texts, ",")
}
