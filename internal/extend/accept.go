package extend

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/cert"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
)

// taken are the names that other definitions of a group have.
type taken struct{ resources, kinds map[string]bool }

// takenBy collects the names that have been accepted.
func takenBy(others []*apiextensionsv1.CustomResourceDefinition) taken {
	t := taken{map[string]bool{}, map[string]bool{}}
	for _, crd := range others {
		n := crd.Status.AcceptedNames
		for _, name := range append([]string{n.Plural, n.Singular}, n.ShortNames...) {
			t.resources[name] = true
		}
		t.kinds[n.Kind], t.kinds[n.ListKind] = true, true
	}
	return t
}

// Accept writes into a definition, which is the caller's own, what becomes of its names beside the
// definitions of its group, and the conditions that tell it. It reports whether the kind is to be
// served from now on, and has been written to be.
func Accept(crd *apiextensionsv1.CustomResourceDefinition, others []*apiextensionsv1.CustomResourceDefinition) (establish bool) {
	if !equality.Semantic.DeepEqual(crd.Spec.Names, crd.Status.AcceptedNames) || apiextensions.Condition(crd, apiextensionsv1.NamesAccepted) == nil {
		acceptNames(crd, takenBy(others))
	}
	structure(crd)
	approval(crd)
	if !apiextensions.IsTrue(crd, apiextensionsv1.NamesAccepted) || apiextensions.IsTrue(crd, apiextensionsv1.Established) {
		return false
	}
	c := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted",
		Message: "the initial names have been accepted",
	}
	if badBundle(crd.Spec.Conversion) {
		c.Status, c.Reason, c.Message = apiextensionsv1.ConditionFalse, "InvalidCABundle", "The conversion webhook CABundle is invalid"
	}
	apiextensions.SetCondition(crd, c)
	return c.Status == apiextensionsv1.ConditionTrue
}

func badBundle(c *apiextensionsv1.CustomResourceConversion) bool {
	if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil || len(c.Webhook.ClientConfig.CABundle) == 0 {
		return false
	}
	_, err := cert.ParseCertsPEM(c.Webhook.ClientConfig.CABundle)
	return err != nil
}

// acceptNames takes over those names that nobody else has.
func acceptNames(crd *apiextensionsv1.CustomResourceDefinition, t taken) {
	wanted, accepted := &crd.Spec.Names, &crd.Status.AcceptedNames
	verdict := apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue, Reason: "NoConflicts", Message: "no conflicts found",
	}
	refuse := func(reason, message string) {
		verdict.Status, verdict.Reason, verdict.Message = apiextensionsv1.ConditionFalse, reason, message
	}
	take := func(want string, have *string, others map[string]bool, reason string) {
		if want != *have && others[want] {
			refuse(reason, fmt.Sprintf("%q is already in use", want))
			return
		}
		*have = want
	}
	take(wanted.Plural, &accepted.Plural, t.resources, "PluralConflict")
	take(wanted.Singular, &accepted.Singular, t.resources, "SingularConflict")
	var clash []string
	for _, short := range wanted.ShortNames {
		if text := fmt.Sprintf("%q is already in use", short); !slices.Contains(accepted.ShortNames, short) && t.resources[short] && !slices.Contains(clash, text) {
			clash = append(clash, text)
		}
	}
	switch len(clash) {
	case 0:
		accepted.ShortNames = slices.Clone(wanted.ShortNames)
	case 1:
		refuse("ShortNamesConflict", clash[0])
	default:
		refuse("ShortNamesConflict", "["+strings.Join(clash, ", ")+"]")
	}
	take(wanted.Kind, &accepted.Kind, t.kinds, "KindConflict")
	take(wanted.ListKind, &accepted.ListKind, t.kinds, "ListKindConflict")
	accepted.Categories = slices.Clone(wanted.Categories)
	apiextensions.SetCondition(crd, verdict)
	if verdict.Status != apiextensionsv1.ConditionTrue && apiextensions.Condition(crd, apiextensionsv1.Established) == nil {
		apiextensions.SetCondition(crd, apiextensionsv1.CustomResourceDefinitionCondition{
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionFalse, Reason: "NotAccepted", Message: "not all names are accepted",
		})
	}
}

// structure tells of schemas that objects cannot be pruned and defaulted by: those that definitions of
// v1beta1 may have.
func structure(crd *apiextensionsv1.CustomResourceDefinition) {
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.NonStructuralSchema, Status: apiextensionsv1.ConditionTrue, Reason: "Violations"}
	if !crd.Spec.PreserveUnknownFields {
		apiextensions.DropCondition(crd, c.Type) // validation asks for structure then
		return
	}
	wrong := field.ErrorList{field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false")}
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		in, err := props(v)
		if in == nil && err == nil {
			continue
		}
		var shape *structural.Structural
		if err == nil {
			shape, err = structural.NewStructural(in)
		}
		if err != nil {
			c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "StructuralError"
			c.Message = fmt.Sprintf("failed to check validation schema for version %s: %v", v.Name, err)
			setIfOther(crd, c)
			return
		}
		wrong = append(wrong, structural.ValidateStructural(field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema"), shape)...)
	}
	c.Message = wrong.ToAggregate().Error()
	setIfOther(crd, c)
}

// approval tells of definitions in groups of Kubernetes itself.
func approval(crd *apiextensionsv1.CustomResourceDefinition) {
	if !apihelpers.IsProtectedCommunityGroup(crd.Spec.Group) {
		return
	}
	state, why := apihelpers.GetAPIApprovalState(crd.Annotations)
	c := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.KubernetesAPIApprovalPolicyConformant, Status: apiextensionsv1.ConditionFalse, Message: why}
	switch state {
	case apihelpers.APIApproved:
		c.Status, c.Reason = apiextensionsv1.ConditionTrue, "ApprovedAnnotation"
	case apihelpers.APIApprovalBypassed:
		c.Reason = "UnapprovedAnnotation"
	case apihelpers.APIApprovalMissing:
		c.Reason = "MissingAnnotation"
	case apihelpers.APIApprovalInvalid:
		c.Reason = "InvalidAnnotation"
	default:
		c.Status, c.Reason = apiextensionsv1.ConditionUnknown, "UnknownAnnotation"
	}
	setIfOther(crd, c)
}

// setIfOther leaves a condition that says the same alone.
func setIfOther(crd *apiextensionsv1.CustomResourceDefinition, c apiextensionsv1.CustomResourceDefinitionCondition) {
	if has := apiextensions.Condition(crd, c.Type); has == nil || has.Status != c.Status || has.Reason != c.Reason || has.Message != c.Message {
		apiextensions.SetCondition(crd, c)
	}
}
