package authorization

import "github.com/kemudi/kemudi/internal/resource"

// All lists the resources of authorization.k8s.io, by kind.
func All() []*resource.Def {
	return []*resource.Def{
		LocalSubjectAccessReviews.Def,
		SelfSubjectAccessReviews.Def,
		SelfSubjectRulesReviews.Def,
		SubjectAccessReviews.Def,
	}
}
