package extend

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kemudi/kemudi/internal/api/apiextensions"
)

func TestNamesAreThoseOfWhoHasThemFirst(t *testing.T) {
	first, second := definition(t, crontabs), definition(t, crontabs)
	first.Status.AcceptedNames = apiextensionsv1.CustomResourceDefinitionNames{}
	if !Accept(first, nil) || !apiextensions.IsTrue(first, apiextensionsv1.NamesAccepted) || !apiextensions.IsTrue(first, apiextensionsv1.Established) {
		t.Fatalf("got %+v, want names accepted and established", first.Status)
	}
	if Accept(first, nil) {
		t.Error("it is established again")
	}
	second.Name, second.Status.AcceptedNames = "others.stable.example.com", apiextensionsv1.CustomResourceDefinitionNames{}
	second.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "others", Singular: "other", Kind: "CronTab", ListKind: "OtherList", ShortNames: []string{"crontab", "ot"}}
	if Accept(second, []*apiextensionsv1.CustomResourceDefinition{first}) {
		t.Error("it is established with names of another")
	}
	c := apiextensions.Condition(second, apiextensionsv1.NamesAccepted)
	if c.Status != apiextensionsv1.ConditionFalse || c.Reason != "KindConflict" || c.Message != `"CronTab" is already in use` {
		t.Errorf("got %+v, want a conflict of kinds", c)
	}
	if got := second.Status.AcceptedNames; got.Plural != "others" || got.ListKind != "OtherList" || got.Kind != "" || len(got.ShortNames) > 0 {
		t.Errorf("got names %+v, want those that nobody has", got)
	}
	if c := apiextensions.Condition(second, apiextensionsv1.Established); c.Reason != "NotAccepted" {
		t.Errorf("got %+v, want it not accepted", c)
	}
	if !Accept(second, nil) {
		t.Error("it is not established when the other is gone")
	}
}

func TestConditionsTellOfStructureAndApproval(t *testing.T) {
	crd := definition(t, crontabs)
	crd.Spec.PreserveUnknownFields, crd.Spec.Group = true, "stable.k8s.io"
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["odd"] = apiextensionsv1.JSONSchemaProps{}
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, to try"}
	Accept(crd, nil)
	want := `[spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.properties[odd].type: Required value: must not be empty for specified object fields]`
	if c := apiextensions.Condition(crd, apiextensionsv1.NonStructuralSchema); c == nil || c.Status != apiextensionsv1.ConditionTrue || c.Reason != "Violations" || c.Message != want {
		t.Errorf("got %+v, want %s", c, want)
	}
	if c := apiextensions.Condition(crd, apiextensionsv1.KubernetesAPIApprovalPolicyConformant); c == nil || c.Reason != "UnapprovedAnnotation" || c.Status != apiextensionsv1.ConditionFalse {
		t.Errorf("got %+v, want it not approved", c)
	}
	crd.Spec.PreserveUnknownFields = false
	Accept(crd, nil)
	if c := apiextensions.Condition(crd, apiextensionsv1.NonStructuralSchema); c != nil {
		t.Errorf("got %+v, want none", c)
	}
}
