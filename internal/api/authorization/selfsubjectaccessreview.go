package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// SelfSubjectAccessReviews ask whether the caller may do something.
var SelfSubjectAccessReviews = resource.Define(resource.Spec[*authorizationv1.SelfSubjectAccessReview]{
	Names:   resource.Names{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectAccessReview", Plural: "selfsubjectaccessreviews"},
	Handler: resource.HandleSelfSubjectAccessReview,
	Prepare: func(obj, _ *authorizationv1.SelfSubjectAccessReview) {
		obj.Status = authorizationv1.SubjectAccessReviewStatus{}
	},
	Validate: func(obj, _ *authorizationv1.SelfSubjectAccessReview, errs *resource.Errors) {
		validateAttributes(obj.Spec.ResourceAttributes, obj.Spec.NonResourceAttributes, errs)
		validateSelectors(obj.Spec.ResourceAttributes, errs)
		validateNoMeta(obj.ObjectMeta, "must be empty", errs)
	},
	Versions: []resource.Version[*authorizationv1.SelfSubjectAccessReview]{resource.SameWire[*authorizationv1beta1.SelfSubjectAccessReview](resource.Version[*authorizationv1.SelfSubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1beta1",
		Deprecated: "authorization.k8s.io/v1beta1 SelfSubjectAccessReview is deprecated in v1.19+, unavailable in v1.22+; use authorization.k8s.io/v1 SelfSubjectAccessReview",
	})},
})
