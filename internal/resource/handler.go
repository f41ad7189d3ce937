package resource

// Handler is code of the API server that answers a subresource, or a resource
// that is a question. A new one is added here, to the list.go of the API
// server's package action or tunnel, and to the declaration.
type Handler uint8

// The handlers, by what they answer.
const (
	Generic Handler = iota // objects and their parts: read, merge, write

	// Subresources that take the place of an object, or ask for something.
	HandleBinding // and the resource bindings
	HandleEviction
	HandleFinalize
	HandleTokenRequest

	// Subresources that take the connection.
	HandleLog
	HandleExec
	HandleAttach
	HandlePortForward
	HandleProxy

	// Questions.
	HandleTokenReview
	HandleSelfSubjectReview
	HandleSubjectAccessReview
	HandleLocalSubjectAccessReview
	HandleSelfSubjectAccessReview
	HandleSelfSubjectRulesReview
)
