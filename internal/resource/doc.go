// Package resource is the shape of an API resource: one value ([Spec]) declares
// everything the server, the client and the documentation generator need to
// know of a kind, and [Define] turns it into a [Def], the same declaration without
// its type, which code that is generic over kinds works with.
//
// A zero field of Spec means "nothing special". Everything in a Spec is pure:
// no I/O, no clock of its own, no goroutines. What a subresource does beyond a
// pure merge (exec, log, eviction ...) is code of the API server: its [Handler].
//
// Start at spec.go; def.go sets what a Spec leaves out, erase.go takes its type
// away. errors.go collects field errors, columns.go prints, names.go says what
// kinds and objects are called, verbs.go and handler.go what is done with them.
package resource
