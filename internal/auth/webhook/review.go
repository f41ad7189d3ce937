package webhook

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kemudi/kemudi/internal/hook"
)

// question is a request as a webhook is asked about it.
func question(a authorizer.Attributes) authorizationv1.SubjectAccessReviewSpec {
	var s authorizationv1.SubjectAccessReviewSpec
	if u := a.GetUser(); u != nil {
		s.User, s.UID, s.Groups = u.GetName(), u.GetUID(), u.GetGroups()
		for key, values := range u.GetExtra() {
			if s.Extra == nil {
				s.Extra = map[string]authorizationv1.ExtraValue{}
			}
			s.Extra[key] = values
		}
	}
	if !a.IsResourceRequest() {
		s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.GetPath(), Verb: a.GetVerb()}
		return s
	}
	r := &authorizationv1.ResourceAttributes{
		Namespace: a.GetNamespace(), Verb: a.GetVerb(), Group: a.GetAPIGroup(), Version: a.GetAPIVersion(),
		Resource: a.GetResource(), Subresource: a.GetSubresource(), Name: a.GetName(),
	}
	if list := fieldRequirements(a); len(list) > 0 {
		r.FieldSelector = &authorizationv1.FieldSelectorAttributes{Requirements: list}
	}
	if list := labelRequirements(a); len(list) > 0 {
		r.LabelSelector = &authorizationv1.LabelSelectorAttributes{Requirements: list}
	}
	s.ResourceAttributes = r
	return s
}

// fieldRequirements are what is known of a request's field selector. What is not
// is left out: the question is then about more, never about less.
func fieldRequirements(a authorizer.Attributes) (list []metav1.FieldSelectorRequirement) {
	known, _ := a.GetFieldSelector() // what could be parsed, beside an error
	for _, r := range known {
		var op metav1.FieldSelectorOperator
		switch r.Operator {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.FieldSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.FieldSelectorOpNotIn
		default:
			continue
		}
		list = append(list, metav1.FieldSelectorRequirement{Key: r.Field, Operator: op, Values: []string{r.Value}})
	}
	return list
}

// labelRequirements are the same of a label selector.
func labelRequirements(a authorizer.Attributes) (list []metav1.LabelSelectorRequirement) {
	known, _ := a.GetLabelSelector()
	for _, r := range known {
		var op metav1.LabelSelectorOperator
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			op = metav1.LabelSelectorOpIn
		case selection.NotEquals, selection.NotIn:
			op = metav1.LabelSelectorOpNotIn
		case selection.Exists:
			op = metav1.LabelSelectorOpExists
		case selection.DoesNotExist:
			op = metav1.LabelSelectorOpDoesNotExist
		default:
			continue
		}
		list = append(list, metav1.LabelSelectorRequirement{Key: r.Key(), Operator: op, Values: r.ValuesUnsorted()})
	}
	return list
}

const group = "authorization.k8s.io/"

// kind is that of questions and answers.
func kind(version string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: group + version, Kind: "SubjectAccessReview"}
}

// document is a question as it is sent, in the webhook's version.
func document(version string, s *authorizationv1.SubjectAccessReviewSpec) any {
	if version == "v1" {
		return &authorizationv1.SubjectAccessReview{TypeMeta: kind(version), Spec: *s}
	}
	old := authorizationv1beta1.SubjectAccessReviewSpec{User: s.User, UID: s.UID, Groups: s.Groups}
	for key, values := range s.Extra {
		if old.Extra == nil {
			old.Extra = map[string]authorizationv1beta1.ExtraValue{}
		}
		old.Extra[key] = authorizationv1beta1.ExtraValue(values)
	}
	if r := s.ResourceAttributes; r != nil {
		old.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{
			Namespace: r.Namespace, Verb: r.Verb, Group: r.Group, Version: r.Version, Resource: r.Resource,
			Subresource: r.Subresource, Name: r.Name, FieldSelector: r.FieldSelector, LabelSelector: r.LabelSelector,
		}
	}
	if p := s.NonResourceAttributes; p != nil {
		old.NonResourceAttributes = &authorizationv1beta1.NonResourceAttributes{Path: p.Path, Verb: p.Verb}
	}
	return &authorizationv1beta1.SubjectAccessReview{TypeMeta: kind(version), Spec: old}
}

// answer is what is read of an answer, the same in both versions.
type answer struct {
	metav1.TypeMeta `json:",inline"`
	Status          status `json:"status"`
}

// status is what a webhook decided.
type status struct {
	Allowed bool   `json:"allowed"`
	Denied  bool   `json:"denied"`
	Reason  string `json:"reason"`
}

// check refuses what is no answer to the question: a list, another version.
func (a *answer) check(version string) error { return hook.CheckKind(a.TypeMeta, kind(version)) }
