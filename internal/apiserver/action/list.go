package action

// List has every action by its name: Sub.Handler and Spec.Handler of the
// declarations. A new one is added here.
func (a *Actions) List() map[string]Func {
	return map[string]Func{
		"binding":  a.bind,         // pods/binding and bindings: binding.go
		"eviction": a.evict,        // pods/eviction: eviction.go
		"finalize": a.finalize,     // namespaces/finalize: finalize.go
		"token":    a.requestToken, // serviceaccounts/token: token.go

		// Questions: review.go.
		"tokenreview":              a.tokenReview,
		"selfsubjectreview":        a.selfSubjectReview,
		"subjectaccessreview":      a.subjectAccessReview,
		"localsubjectaccessreview": a.localSubjectAccessReview,
		"selfsubjectaccessreview":  a.selfSubjectAccessReview,
		"selfsubjectrulesreview":   a.selfSubjectRulesReview,
	}
}
