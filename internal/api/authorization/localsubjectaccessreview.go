package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// LocalSubjectAccessReviews ask whether somebody may do something in a namespace.
var LocalSubjectAccessReviews = resource.Define(resource.Spec[*authorizationv1.LocalSubjectAccessReview]{
	Names:   resource.Names{Group: "authorization.k8s.io", Version: "v1", Kind: "LocalSubjectAccessReview", Plural: "localsubjectaccessreviews", Namespaced: true},
	Handler: resource.HandleLocalSubjectAccessReview,
	Prepare: func(obj, _ *authorizationv1.LocalSubjectAccessReview) {
		obj.Status = authorizationv1.SubjectAccessReviewStatus{}
	},
	Validate: validateLocalReview,
	Versions: []resource.Version[*authorizationv1.LocalSubjectAccessReview]{resource.SameWire[*authorizationv1beta1.LocalSubjectAccessReview](resource.Version[*authorizationv1.LocalSubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1beta1",
		Deprecated: "authorization.k8s.io/v1beta1 LocalSubjectAccessReview is deprecated in v1.19+, unavailable in v1.22+; use authorization.k8s.io/v1 LocalSubjectAccessReview",
	})},
})

func validateLocalReview(obj, _ *authorizationv1.LocalSubjectAccessReview, errs *resource.Errors) {
	s := &obj.Spec
	validateSubjectSpec(s, errs)
	meta := obj.ObjectMeta
	meta.Namespace = ""
	validateNoMeta(meta, "must be empty except for namespace", errs)
	if s.ResourceAttributes != nil && s.ResourceAttributes.Namespace != obj.Namespace {
		errs.Invalid("spec.resourceAttributes.namespace", s.ResourceAttributes.Namespace, "must match metadata.namespace")
	}
	if s.NonResourceAttributes != nil {
		errs.Invalid("spec.nonResourceAttributes", s.NonResourceAttributes, "disallowed on this kind of request")
	}
}
