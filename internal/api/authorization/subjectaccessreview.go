package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// SubjectAccessReviews ask whether somebody may do something.
var SubjectAccessReviews = resource.Define(resource.Spec[*authorizationv1.SubjectAccessReview]{
	Names:   resource.Names{Group: "authorization.k8s.io", Version: "v1", Kind: "SubjectAccessReview", Plural: "subjectaccessreviews"},
	Handler: resource.HandleSubjectAccessReview,
	Prepare: func(obj, _ *authorizationv1.SubjectAccessReview) {
		obj.Status = authorizationv1.SubjectAccessReviewStatus{}
	},
	Validate: func(obj, _ *authorizationv1.SubjectAccessReview, errs *resource.Errors) {
		validateSubjectSpec(&obj.Spec, errs)
		validateNoMeta(obj.ObjectMeta, "must be empty", errs)
	},
	Versions: []resource.Version[*authorizationv1.SubjectAccessReview]{resource.SameWire[*authorizationv1beta1.SubjectAccessReview](resource.Version[*authorizationv1.SubjectAccessReview]{
		Group: "authorization.k8s.io", Version: "v1beta1",
		Deprecated: "authorization.k8s.io/v1beta1 SubjectAccessReview is deprecated in v1.19+, unavailable in v1.22+; use authorization.k8s.io/v1 SubjectAccessReview",
	})},
})
