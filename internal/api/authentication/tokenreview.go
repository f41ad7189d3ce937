package authentication

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// TokenReviews ask whom a bearer token belongs to. The handler refuses an empty
// token ("token is required for TokenReview in authentication").
var TokenReviews = resource.Define(resource.Spec[*authenticationv1.TokenReview]{
	Names:   resource.Names{Group: "authentication.k8s.io", Version: "v1", Kind: "TokenReview", Plural: "tokenreviews"},
	Handler: resource.HandleTokenReview,
	Prepare: func(obj, _ *authenticationv1.TokenReview) { obj.Status = authenticationv1.TokenReviewStatus{} },
	Versions: []resource.Version[*authenticationv1.TokenReview]{resource.SameWire[*authenticationv1beta1.TokenReview](resource.Version[*authenticationv1.TokenReview]{
		Group: "authentication.k8s.io", Version: "v1beta1",
		Deprecated: "authentication.k8s.io/v1beta1 TokenReview is deprecated in v1.19+, unavailable in v1.22+; use authentication.k8s.io/v1 TokenReview",
	})},
})
