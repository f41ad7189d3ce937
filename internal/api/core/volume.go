package core

import (
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/diff"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/api/core/csi"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// PersistentVolumes is storage that claims can be bound to.
var PersistentVolumes = resource.Define(resource.Spec[*corev1.PersistentVolume]{
	Names:    resource.Names{Version: "v1", Kind: "PersistentVolume", Plural: "persistentvolumes", Short: []string{"pv"}},
	Deletion: resource.Deletion[*corev1.PersistentVolume]{AnswersDeleted: true},
	Default:  defaultVolumeObject, Prepare: prepareVolume, Validate: validateVolume, Warn: warnVolume,
	Columns: volumeColumns,
	Fields: map[string]func(*corev1.PersistentVolume) string{
		"name":           func(v *corev1.PersistentVolume) string { return v.Name },
		claims.LocalNode: claims.LocalTo,
	},
	Index: map[string]func(*corev1.PersistentVolume) []string{
		IndexClaim: func(v *corev1.PersistentVolume) []string {
			if v.Spec.ClaimRef == nil {
				return nil
			}
			return []string{v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name}
		},
		claims.LocalNode: func(v *corev1.PersistentVolume) []string {
			if node := claims.LocalTo(v); node != "" {
				return []string{node}
			}
			return nil
		},
		IndexFree: func(v *corev1.PersistentVolume) []string {
			if v.Spec.ClaimRef != nil {
				return nil
			}
			return []string{claims.VolumeClass(v)}
		},
		IndexAttributes: claims.VolumeAttributes,
		IndexCSI: func(v *corev1.PersistentVolume) []string {
			if v = Attachable(v); v == nil {
				return nil
			}
			return []string{string(csi.Name(v.Spec.CSI.Driver, v.Spec.CSI.VolumeHandle)), v.Spec.CSI.Driver}
		},
	},
	Sub: []resource.Sub[*corev1.PersistentVolume]{{
		Name:  "status",
		Merge: mergeVolumeStatus, Validate: func(_, _ *corev1.PersistentVolume, _ *resource.Errors) {},
	}},
})

// Indexes of PersistentVolumes.
const (
	IndexClaim = "claim" // namespace/name of the claim they are for; of pods: of those they use
	IndexFree  = "free"  // the class of those that are for no claim
	IndexCSI   = "csi"   // what nodes call those that can be attached, and their driver; of pods: of those that stand in them, and are not claimed
)

// Attachable is a volume as the driver knows it that may have to attach it; nil if no driver does.
func Attachable(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	if claims.LocalTo(v) != "" { // it is where it is
		return nil
	}
	return csi.Of(v)
}

// mergeVolumeStatus notes when the phase changed, unless the client says that.
func mergeVolumeStatus(v, old *corev1.PersistentVolume) {
	v.Spec = old.Spec
	said := v.Status.LastPhaseTransitionTime
	if v.Status.Phase != old.Status.Phase && (said == nil || said.Equal(old.Status.LastPhaseTransitionTime)) {
		v.Status.LastPhaseTransitionTime = ptr.To(metav1.Now())
	}
}

func defaultVolumeObject(v *corev1.PersistentVolume) {
	check.SetIfZero(&v.Status.Phase, corev1.VolumePending)
	check.SetIfZero(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	if v.Spec.VolumeMode == nil {
		v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeFilesystem)
	}
	check.RoundUp(v.Spec.Capacity)
	podspec.DefaultVolumeSource(&v.Spec.PersistentVolumeSource)
}

func prepareVolume(v, old *corev1.PersistentVolume) {
	if old != nil {
		v.Status = old.Status
		return
	}
	v.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending, LastPhaseTransitionTime: ptr.To(metav1.Now())}
}

func validateVolume(v, old *corev1.PersistentVolume, errs *resource.Errors) {
	at, s := errs.At("spec"), &v.Spec
	if len(s.AccessModes) == 0 {
		at.Required("accessModes", "")
	}
	podspec.ValidateAccessModes(at, s.AccessModes)
	validateVolumeCapacity(at, s.Capacity)
	check.OneOf(at, "persistentVolumeReclaimPolicy", s.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimDelete,
		corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)
	if s.NodeAffinity != nil {
		if s.NodeAffinity.Required == nil {
			at.Required("nodeAffinity.required", "must specify required node constraints")
		} else {
			podspec.ValidateNodeSelector(at.At("nodeAffinity.required"), s.NodeAffinity.Required)
		}
	}
	podspec.ValidateVolumeSource(at, v)
	if s.HostPath != nil && path.Clean(s.HostPath.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		at.Forbidden("persistentVolumeReclaimPolicy", "may not be 'recycle' for a hostPath mount of '/'")
	}
	if s.StorageClassName != "" {
		check.DNSSubdomain(at, "storageClassName", s.StorageClassName)
	}
	if s.VolumeMode != nil {
		check.OneOf(at, "volumeMode", *s.VolumeMode, corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem)
	}
	if class := s.VolumeAttributesClassName; class != nil {
		if *class == "" {
			at.Required("volumeAttributesClassName", "an empty string is disallowed")
		} else {
			check.DNSSubdomain(at, "volumeAttributesClassName", *class)
		}
		if s.CSI == nil {
			at.Required("csi", "has to be specified when using volumeAttributesClassName")
		}
	}
	if old != nil {
		validateVolumeChange(v, old, errs)
	}
}

func validateVolumeCapacity(errs *resource.Errors, capacity corev1.ResourceList) {
	if len(capacity) == 0 {
		errs.Required("capacity", "")
	}
	if _, ok := capacity[corev1.ResourceStorage]; !ok || len(capacity) > 1 {
		errs.Add(field.NotSupported(errs.Path("capacity"), capacity, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, q := range capacity {
		at := errs.At("capacity[%s]", name)
		if q.Sign() < 0 {
			at.Invalid("", q.Value(), "must be a valid resource quantity")
		}
		check.Positive(at, "", q)
	}
}

// validateVolumeChange keeps where the data are. A secret for growing may be added.
func validateVolumeChange(v, old *corev1.PersistentVolume, errs *resource.Errors) {
	now, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if now.CSI != nil && was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil {
		csi := *now.CSI
		csi.ControllerExpandSecretRef = nil
		now.CSI = &csi
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs.Forbidden("spec.persistentvolumesource",
			fmt.Sprintf("spec.persistentvolumesource is immutable after creation\n%v", diff.Diff(was, now)))
	}
	if !ptr.Equal(v.Spec.VolumeMode, old.Spec.VolumeMode) {
		errs.Immutable("volumeMode", v.Spec.VolumeMode)
	}
	if old.Spec.NodeAffinity != nil && !equality.Semantic.DeepEqual(withStableLabels(v.Spec.NodeAffinity), withStableLabels(old.Spec.NodeAffinity)) {
		errs.Invalid("nodeAffinity", v.Spec.NodeAffinity, "field is immutable, except for updating from beta label to GA")
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs.Forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")
	}
}

// stableLabels are the names today of labels that had others.
var stableLabels = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
	"beta.kubernetes.io/os":             corev1.LabelOSStable,
	"beta.kubernetes.io/arch":           corev1.LabelArchStable,
	corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
}

func withStableLabels(a *corev1.VolumeNodeAffinity) *corev1.VolumeNodeAffinity {
	a = a.DeepCopy()
	if a == nil || a.Required == nil {
		return a
	}
	for i := range a.Required.NodeSelectorTerms {
		for j := range a.Required.NodeSelectorTerms[i].MatchExpressions {
			if r := &a.Required.NodeSelectorTerms[i].MatchExpressions[j]; stableLabels[r.Key] != "" {
				r.Key = stableLabels[r.Key]
			}
		}
	}
	return a
}

var volumeColumns = []resource.Column[*corev1.PersistentVolume]{
	{
		Name: "Capacity", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["capacity"],
		Value: func(v *corev1.PersistentVolume) any {
			q := v.Spec.Capacity[corev1.ResourceStorage]
			return q.String()
		},
	},
	{
		Name: "Access Modes", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["accessModes"],
		Value: func(v *corev1.PersistentVolume) any { return formatAccessModes(v.Spec.AccessModes) },
	},
	{
		Name: "Reclaim Policy", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["persistentVolumeReclaimPolicy"],
		Value: func(v *corev1.PersistentVolume) any { return string(v.Spec.PersistentVolumeReclaimPolicy) },
	},
	{
		Name: "Status", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["phase"],
		Value: func(v *corev1.PersistentVolume) any {
			if v.DeletionTimestamp != nil {
				return "Terminating"
			}
			return string(v.Status.Phase)
		},
	},
	{
		Name: "Claim", Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["claimRef"],
		Value: func(v *corev1.PersistentVolume) any {
			if v.Spec.ClaimRef == nil {
				return ""
			}
			return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
		},
	},
	{
		Name: "StorageClass", Description: "StorageClass of the pv",
		Value: func(v *corev1.PersistentVolume) any { return claims.VolumeClass(v) },
	},
	{
		Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pv",
		Value: func(v *corev1.PersistentVolume) any { return orUnset(v.Spec.VolumeAttributesClassName) },
	},
	{
		Name: "Reason", Description: corev1.PersistentVolumeStatus{}.SwaggerDoc()["reason"],
		Value: func(v *corev1.PersistentVolume) any { return v.Status.Reason },
	},
	{
		Name: "VolumeMode", Priority: 1, Description: corev1.PersistentVolumeSpec{}.SwaggerDoc()["volumeMode"],
		Value: func(v *corev1.PersistentVolume) any { return orUnset((*string)(v.Spec.VolumeMode)) },
	},
}
