package resource

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ValidateMeta checks the metadata of an object of any kind: names, labels,
// annotations, owners, finalizers, and on update (old is not nil) what may not
// change. The API server calls it for every kind, before the kind's own Validate.
func ValidateMeta(obj, old Object, def *Def, errs *Errors) {
	path := field.NewPath("metadata")
	if old == nil {
		errs.Add(validation.ValidateObjectMetaAccessor(obj, def.Namespaced, validation.ValidateNameFunc(def.NameRule), path)...)
	} else {
		// The name cannot change, so it needs no check beyond that.
		errs.Add(validation.ValidateObjectMetaAccessorUpdate(obj, old, path)...)
		errs.Add(validation.ValidateFinalizers(obj.GetFinalizers(), path.Child("finalizers"))...)
	}
	if def.Dynamic != nil { // they may have finalizers without a domain
		return
	}
	for i, name := range obj.GetFinalizers() {
		if !strings.Contains(name, "/") && !slices.Contains(standardFinalizers, name) {
			errs.At("metadata.finalizers[%d]", i).Invalid("", name, "name is neither a standard finalizer name nor is it fully qualified")
		}
	}
}

// standardFinalizers are those that need no domain.
var standardFinalizers = []string{"kubernetes", "orphan", "foregroundDeletion", "customresourcecleanup.apiextensions.k8s.io"}
