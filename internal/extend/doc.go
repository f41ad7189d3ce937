// Package extend makes kinds of custom resource definitions.
//
// Start at [Compile]: what a definition says of its versions becomes functions of a [custom.Kind]. A
// version's schema is read when the first object needs it (schema.go), its rules when the first is
// written: a definition that nobody uses costs little more than itself. [Model] is what documents and
// server-side apply know of a version.
//
// What a definition is told in turn (names, conditions, which versions are stored) is decided by [Accept]
// and by [Follower], which follows the definitions, has kinds served, and empties those that go. How
// objects are read, written and watched is no matter of this package.
package extend
