package apiextensions

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition is a definition's condition of a type, nil if it has none.
func Condition(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) *apiextensionsv1.CustomResourceDefinitionCondition {
	for i := range crd.Status.Conditions {
		if c := &crd.Status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}

// IsTrue reports whether a definition has a condition of a type that is true.
func IsTrue(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	c := Condition(crd, kind)
	return c != nil && c.Status == apiextensionsv1.ConditionTrue
}

// SetCondition writes a condition into a definition that belongs to the caller, its list of
// conditions included. The time of transition is now where the status is another.
func SetCondition(crd *apiextensionsv1.CustomResourceDefinition, c apiextensionsv1.CustomResourceDefinitionCondition) {
	c.LastTransitionTime = metav1.Now().Rfc3339Copy()
	has := Condition(crd, c.Type)
	if has == nil {
		crd.Status.Conditions = append(crd.Status.Conditions, c)
		return
	}
	if has.Status == c.Status && !has.LastTransitionTime.IsZero() {
		c.LastTransitionTime = has.LastTransitionTime
	}
	c.ObservedGeneration = max(c.ObservedGeneration, has.ObservedGeneration)
	*has = c
}

// DropCondition takes a condition out of a definition that belongs to the caller.
func DropCondition(crd *apiextensionsv1.CustomResourceDefinition, kind apiextensionsv1.CustomResourceDefinitionConditionType) {
	crd.Status.Conditions = slices.DeleteFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool { return c.Type == kind })
}
