package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// SelfSubjectReviews ask who the caller is.
var SelfSubjectReviews = resource.Define(resource.Spec[*authenticationv1.SelfSubjectReview]{
	Names:   resource.Names{Group: "authentication.k8s.io", Version: "v1", Kind: "SelfSubjectReview", Plural: "selfsubjectreviews"},
	Handler: resource.HandleSelfSubjectReview,
	Prepare: func(obj, _ *authenticationv1.SelfSubjectReview) {
		obj.Status = authenticationv1.SelfSubjectReviewStatus{}
	},
	Versions: []resource.Version[*authenticationv1.SelfSubjectReview]{resource.SameWire[*authenticationv1beta1.SelfSubjectReview](resource.Version[*authenticationv1.SelfSubjectReview]{
		Group: "authentication.k8s.io", Version: "v1beta1",
		Deprecated: "authentication.k8s.io/v1beta1 SelfSubjectReview is deprecated in v1.30+, unavailable in v1.33+",
	})},
})
