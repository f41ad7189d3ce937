package authentication

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of authentication.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		SelfSubjectReviews.Def,
		TokenReviews.Def,
	}
}
