package authorization

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// SelfSubjectRulesReviews ask for all that the caller may do in a
// namespace. The handler refuses one without a namespace ("no namespace on request").
var SelfSubjectRulesReviews = resource.Define(resource.Spec[*authorizationv1.SelfSubjectRulesReview]{
	Names:   resource.Names{Group: "authorization.k8s.io", Version: "v1", Kind: "SelfSubjectRulesReview", Plural: "selfsubjectrulesreviews"},
	Handler: resource.HandleSelfSubjectRulesReview,
	Prepare: func(obj, _ *authorizationv1.SelfSubjectRulesReview) {
		obj.Status = authorizationv1.SubjectRulesReviewStatus{}
	},
	Versions: []resource.Version[*authorizationv1.SelfSubjectRulesReview]{resource.SameWire[*authorizationv1beta1.SelfSubjectRulesReview](resource.Version[*authorizationv1.SelfSubjectRulesReview]{
		Group: "authorization.k8s.io", Version: "v1beta1",
		Deprecated: "authorization.k8s.io/v1beta1 SelfSubjectRulesReview is deprecated in v1.19+, unavailable in v1.22+; use authorization.k8s.io/v1 SelfSubjectRulesReview",
	})},
})
