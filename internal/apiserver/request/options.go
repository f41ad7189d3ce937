package request

import (
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	internalvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Revision reads the parameters of gets. Clients of long ago may ask for an object as it would be elsewhere, which nobody
// can know.
func Revision(u *url.URL) (string, error) {
	query := u.Query()
	if IsTrue(query.Get("export"), query.Has("export")) {
		return "", apierrors.NewBadRequest("the export parameter, deprecated since v1.14, is no longer supported")
	}
	return query.Get("resourceVersion"), nil
}

// ListOptions reads the parameters of lists and watches.
func ListOptions(u *url.URL) (*metav1.ListOptions, error) {
	o := &metav1.ListOptions{}
	if u.RawQuery == "" {
		return o, nil
	}
	query := u.Query()
	if err := metav1.Convert_url_Values_To_v1_ListOptions(&query, o, nil); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return o, nil
}

// WriteOptions reads the parameters of all writes, and those of patches.
func WriteOptions(u *url.URL, patch bool) (o metav1.PatchOptions, err error) {
	if u.RawQuery == "" {
		return o, nil
	}
	query := u.Query()
	o.DryRun, o.FieldManager, o.FieldValidation = query["dryRun"], query.Get("fieldManager"), query.Get("fieldValidation")
	if force := query["force"]; patch && len(force) > 0 {
		var b *bool
		if err := runtime.Convert_Slice_string_To_Pointer_bool(&force, &b, nil); err != nil {
			return o, apierrors.NewBadRequest(err.Error())
		}
		o.Force = b
	}
	return o, nil
}

// DeleteOptions reads the parameters of a delete without a body into o.
func DeleteOptions(u *url.URL, o *metav1.DeleteOptions) error {
	if u.RawQuery == "" {
		return nil
	}
	query := u.Query()
	if err := metav1.Convert_url_Values_To_v1_DeleteOptions(&query, o, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

// CheckList refuses options of a list or watch that make no sense.
func CheckList(o *metav1.ListOptions) error {
	if *o == (metav1.ListOptions{}) {
		return nil
	}
	check := internalversion.ListOptions{
		Watch: o.Watch, AllowWatchBookmarks: o.AllowWatchBookmarks, ResourceVersion: o.ResourceVersion,
		ResourceVersionMatch: o.ResourceVersionMatch, Limit: o.Limit, Continue: o.Continue, SendInitialEvents: o.SendInitialEvents,
	}
	internalversion.SetListOptionsDefaults(&check, true)
	return invalid("ListOptions", internalvalidation.ValidateListOptions(&check, true))
}

// CheckWrite refuses options of a create or update, which are of the kind.
func CheckWrite(kind string, o *metav1.PatchOptions) error {
	if isPlain(o) {
		return nil
	}
	errs := validation.ValidateFieldManager(o.FieldManager, field.NewPath("fieldManager"))
	errs = append(errs, validation.ValidateDryRun(field.NewPath("dryRun"), o.DryRun)...)
	errs = append(errs, validation.ValidateFieldValidation(field.NewPath("fieldValidation"), o.FieldValidation)...)
	return invalid(kind, errs)
}

// CheckPatch refuses options of a patch.
func CheckPatch(o *metav1.PatchOptions, kind types.PatchType) error {
	if isPlain(o) && o.Force == nil && kind != types.ApplyYAMLPatchType {
		return nil
	}
	return invalid("PatchOptions", validation.ValidatePatchOptions(o, kind))
}

// isPlain reports that there is nothing to check, which costs.
func isPlain(o *metav1.PatchOptions) bool {
	return len(o.DryRun) == 0 && o.FieldManager == "" && (o.FieldValidation == "" || o.FieldValidation == metav1.FieldValidationIgnore)
}

// CheckDelete refuses options of a delete.
func CheckDelete(o *metav1.DeleteOptions) error {
	return invalid("DeleteOptions", validation.ValidateDeleteOptions(o))
}

// CheckDeleteCollection refuses options that are good for the deletion of single objects alone.
func CheckDeleteCollection(o *metav1.DeleteOptions) error {
	if unsafe := o.IgnoreStoreReadErrorWithClusterBreakingPotential; unsafe == nil || !*unsafe {
		return nil
	}
	return invalid("DeleteOptions", field.ErrorList{
		field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option"),
	})
}

// invalid is the error of options of the kind, if anything is wrong with them.
func invalid(kind string, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: kind}, "", errs)
}
