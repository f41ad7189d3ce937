package action

import "github.com/kemudi/kemudi/internal/resource"

// List has every action by the handler that declarations name. A new one is
// added here.
func (a *Actions) List() map[resource.Handler]Func {
	return map[resource.Handler]Func{
		resource.HandleBinding:      a.bind,         // pods/binding and bindings: binding.go
		resource.HandleEviction:     a.evict,        // pods/eviction: eviction.go
		resource.HandleFinalize:     a.finalize,     // namespaces/finalize: finalize.go
		resource.HandleTokenRequest: a.requestToken, // serviceaccounts/token: token.go

		// Questions: review.go.
		resource.HandleTokenReview:              a.tokenReview,
		resource.HandleSelfSubjectReview:        a.selfSubjectReview,
		resource.HandleSubjectAccessReview:      a.subjectAccessReview,
		resource.HandleLocalSubjectAccessReview: a.localSubjectAccessReview,
		resource.HandleSelfSubjectAccessReview:  a.selfSubjectAccessReview,
		resource.HandleSelfSubjectRulesReview:   a.selfSubjectRulesReview,
	}
}
