package apiextensions

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// background is what the library would end its checks by.
var background = context.Background()

// validate asks the library, which looks into schemas, defaults and rules as upstream does.
func validate(crd, old *apiextensionsv1.CustomResourceDefinition, errs *resource.Errors) {
	validateAgainst(crd, old, errs, nil)
}

// validateV1beta1 holds a new definition to what its version asks for: neither a schema nor a
// structural one. It does so as if a definition without had been there before.
func validateV1beta1(crd, old *apiextensionsv1.CustomResourceDefinition, errs *resource.Errors) {
	if old != nil {
		validate(crd, old, errs)
		return
	}
	validateAgainst(crd, nil, errs, func(lax *apiextensions.CustomResourceDefinition) {
		lax.Status, lax.Annotations = apiextensions.CustomResourceDefinitionStatus{}, nil
		lax.Spec.PreserveUnknownFields, lax.Spec.Validation = ptr.To(true), nil
		loose := apiextensions.JSONSchemaProps{Properties: map[string]apiextensions.JSONSchemaProps{"of no type": {}}}
		lax.Spec.Versions = []apiextensions.CustomResourceDefinitionVersion{
			{Name: "without"}, {Name: "loose", Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &loose}},
		}
	})
}

// validateAgainst validates a definition. With loosen it is looked at, though new, as a change of
// what that makes of it.
func validateAgainst(crd, old *apiextensionsv1.CustomResourceDefinition, errs *resource.Errors, loosen func(*apiextensions.CustomResourceDefinition)) {
	in, err := internal(crd)
	if err != nil {
		errs.Internal("spec", err)
		return
	}
	var found field.ErrorList
	switch before, err := internal(old); {
	case err != nil:
		errs.Internal("spec", err)
		return
	case old != nil:
		found = validation.ValidateCustomResourceDefinitionUpdate(background, in, before)
	case loosen != nil:
		before = in.DeepCopy()
		loosen(before)
		found = validation.ValidateCustomResourceDefinitionUpdate(background, in, before)
	default:
		found = validation.ValidateCustomResourceDefinition(background, in)
	}
	if old == nil {
		checkName(crd, errs)
	}
	addAllButMetadata(errs, found)
}

func validateStatus(crd, old *apiextensionsv1.CustomResourceDefinition, errs *resource.Errors) {
	in, err := internal(crd)
	if err != nil {
		errs.Internal("status", err)
		return
	}
	before, err := internal(old)
	if err != nil {
		errs.Internal("status", err)
		return
	}
	addAllButMetadata(errs, validation.ValidateUpdateCustomResourceDefinitionStatus(background, in, before))
}

// checkName holds that the name is that of the resource.
func checkName(crd *apiextensionsv1.CustomResourceDefinition, errs *resource.Errors) {
	for _, wrong := range apivalidation.NameIsDNSSubdomain(crd.Name, false) {
		errs.Invalid("metadata.name", crd.Name, wrong)
	}
	if crd.Name != crd.Spec.Names.Plural+"."+crd.Spec.Group {
		errs.Invalid("metadata.name", crd.Name, `must be spec.names.plural+"."+spec.group`)
	}
}

// addAllButMetadata leaves out what the server finds wrong with metadata itself. The approval of
// groups of Kubernetes is no such thing.
func addAllButMetadata(errs *resource.Errors, found field.ErrorList) {
	for _, e := range found {
		if !strings.HasPrefix(e.Field, "metadata") || strings.Contains(e.Field, apiextensionsv1.KubeAPIApprovedAnnotation) {
			errs.Add(e)
		}
	}
}

// internal is the form that the library validates: nil for nil.
func internal(crd *apiextensionsv1.CustomResourceDefinition) (*apiextensions.CustomResourceDefinition, error) {
	if crd == nil {
		return nil, nil
	}
	out := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), out, nil); err != nil {
		return nil, fmt.Errorf("read the definition: %w", err)
	}
	if out.ResourceVersion == "" {
		out.ResourceVersion = "1" // the server has looked at it
	}
	out.ManagedFields, out.OwnerReferences, out.CreationTimestamp = nil, nil, metav1.Time{}
	return out, nil
}
