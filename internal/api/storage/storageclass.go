package storage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	storagev1beta1 "k8s.io/api/storage/v1beta1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// What the parameters of a class may come to.
const (
	maxParameters     = 512
	maxParameterBytes = 256 << 10
)

// StorageClasses describe how volumes are provisioned.
var StorageClasses = resource.Define(resource.Spec[*storagev1.StorageClass]{
	Names: resource.Names{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass", Plural: "storageclasses", Short: []string{"sc"}},
	Default: func(sc *storagev1.StorageClass) {
		if sc.ReclaimPolicy == nil {
			sc.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimDelete)
		}
		if sc.VolumeBindingMode == nil {
			sc.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		}
	},
	Validate: func(obj, old *storagev1.StorageClass, errs *resource.Errors) {
		validateStorageClass(obj, errs)
		if old != nil {
			validateStorageClassUpdate(obj, old, errs)
		}
	},
	Warn: warnStorageClass,
	Columns: []resource.Column[*storagev1.StorageClass]{
		{Name: "Name", Format: "name", Value: func(sc *storagev1.StorageClass) any {
			if IsDefaultClass(sc) {
				return sc.Name + " (default)"
			}
			return sc.Name
		}},
		{Name: "Provisioner", Description: storagev1.StorageClass{}.SwaggerDoc()["provisioner"], Value: func(sc *storagev1.StorageClass) any { return sc.Provisioner }},
		{Name: "ReclaimPolicy", Description: storagev1.StorageClass{}.SwaggerDoc()["reclaimPolicy"], Value: func(sc *storagev1.StorageClass) any {
			return string(ptr.Deref(sc.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
		}},
		{Name: "VolumeBindingMode", Description: storagev1.StorageClass{}.SwaggerDoc()["volumeBindingMode"], Value: func(sc *storagev1.StorageClass) any {
			return string(ptr.Deref(sc.VolumeBindingMode, storagev1.VolumeBindingImmediate))
		}},
		{Name: "AllowVolumeExpansion", Description: storagev1.StorageClass{}.SwaggerDoc()["allowVolumeExpansion"], Value: func(sc *storagev1.StorageClass) any {
			return ptr.Deref(sc.AllowVolumeExpansion, false)
		}},
	},
	Versions: []resource.Version[*storagev1.StorageClass]{resource.SameWire[*storagev1beta1.StorageClass](resource.Version[*storagev1.StorageClass]{
		Group: "storage.k8s.io", Version: "v1beta1",
		Deprecated: "storage.k8s.io/v1beta1 StorageClass is deprecated in v1.19+, unavailable in v1.22+; use storage.k8s.io/v1 StorageClass",
	})},
})

// DefaultAnnotation marks the default class, by the value "true".
const DefaultAnnotation = "storageclass.kubernetes.io/is-default-class"

// IsDefaultClass reports whether claims without a class get this one.
func IsDefaultClass(sc *storagev1.StorageClass) bool {
	return sc.Annotations[DefaultAnnotation] == "true" ||
		sc.Annotations["storageclass.beta.kubernetes.io/is-default-class"] == "true"
}

// DefaultClass is the class that claims without one get; nil: there is none. Of
// several it is the newest.
func DefaultClass(classes []*storagev1.StorageClass) (chosen *storagev1.StorageClass) {
	for _, sc := range classes {
		if IsDefaultClass(sc) && (chosen == nil || newer(sc, chosen)) {
			chosen = sc
		}
	}
	return chosen
}

func newer(a, b *storagev1.StorageClass) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.Name < b.Name
	}
	return b.CreationTimestamp.Before(&a.CreationTimestamp)
}

func validateStorageClass(sc *storagev1.StorageClass, errs *resource.Errors) {
	validateProvisioner("provisioner", sc.Provisioner, errs)
	validateParameters(sc.Parameters, errs)
	switch p := ptr.Deref(sc.ReclaimPolicy, ""); p {
	case "", corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain:
	default:
		resource.NotSupported(errs, "reclaimPolicy", p, corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
	}
	switch m := ptr.Deref(sc.VolumeBindingMode, ""); m {
	case storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer:
	default:
		if sc.VolumeBindingMode == nil {
			errs.Required("volumeBindingMode", "")
			break
		}
		resource.NotSupported(errs, "volumeBindingMode", m, storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)
	}
	validateTopologies(sc.AllowedTopologies, errs)
}

func validateProvisioner(path, name string, errs *resource.Errors) {
	if name == "" {
		errs.Required(path, "")
		return
	}
	lower := strings.ToLower(name)
	errs.Refuse(path, lower, validation.IsQualifiedName(lower))
}

func validateParameters(params map[string]string, errs *resource.Errors) {
	if len(params) > maxParameters {
		errs.TooLong("parameters", maxParameters)
		return
	}
	size := 0
	for k, v := range params {
		if k == "" {
			errs.Invalid("parameters", k, "field can not be empty.")
		}
		size += len(k) + len(v)
	}
	if size > maxParameterBytes {
		errs.TooLong("parameters", maxParameterBytes)
	}
}

func validateTopologies(terms []corev1.TopologySelectorTerm, errs *resource.Errors) {
	var seen []map[string][]string
	for i, term := range terms {
		at := errs.At("allowedTopologies[%d]", i)
		keys := map[string][]string{}
		for j, e := range term.MatchLabelExpressions {
			in := at.At("matchLabelExpressions[%d]", j)
			if len(e.Values) == 0 {
				in.Required("values", "")
			}
			for n, v := range e.Values {
				if slices.Contains(e.Values[:n], v) {
					in.At("values[%d]", n).Duplicate("", v)
				}
			}
			in.Add(metavalidation.ValidateLabelName(e.Key, in.Path("key"))...)
			if _, ok := keys[e.Key]; ok {
				in.Duplicate("key", e.Key)
			}
			keys[e.Key] = slices.Sorted(slices.Values(e.Values))
		}
		same := func(other map[string][]string) bool { return maps.EqualFunc(keys, other, slices.Equal[[]string]) }
		if slices.ContainsFunc(seen, same) {
			at.Duplicate("matchLabelExpressions", "")
		}
		seen = append(seen, keys)
	}
}

func validateStorageClassUpdate(obj, old *storagev1.StorageClass, errs *resource.Errors) {
	if !maps.Equal(obj.Parameters, old.Parameters) {
		errs.Forbidden("parameters", "updates to parameters are forbidden.")
	}
	if obj.Provisioner != old.Provisioner {
		errs.Forbidden("provisioner", "updates to provisioner are forbidden.")
	}
	if ptr.Deref(obj.ReclaimPolicy, "") != ptr.Deref(old.ReclaimPolicy, "") {
		errs.Forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.")
	}
	if ptr.Deref(obj.VolumeBindingMode, "") != ptr.Deref(old.VolumeBindingMode, "") {
		errs.Immutable("volumeBindingMode", obj.VolumeBindingMode)
	}
}

func warnStorageClass(sc, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range sc.AllowedTopologies {
		for j, e := range term.MatchLabelExpressions {
			if text, ok := podspec.OldNodeLabel(e.Key); ok {
				warnings = append(warnings, fmt.Sprintf("allowedTopologies[%d].matchLabelExpressions[%d].key: %s is %s", i, j, e.Key, text))
			}
		}
	}
	return warnings
}
