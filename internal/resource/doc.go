// Package resource is the shape of an API resource: one value ([Spec]) declares
// everything the server, the client and the documentation generator need to
// know of a kind, and [Define] turns it into a [Def], which code that is generic
// over kinds works with.
//
// A zero field of Spec means "nothing special". Everything in a Spec is pure:
// no I/O, no clock of its own, no goroutines. What a subresource does beyond a
// pure merge (exec, log, eviction ...) is code of the API server, found by the
// name in [Sub.Handler].
//
// Start at spec.go; errors.go collects field errors, columns.go and format.go
// print, names.go holds the name rules.
package resource
