// Package custom is the objects of kinds that are known at run time only, as custom resource
// definitions declare them.
//
// Start at [Object], which all such kinds share: typed metadata, and the rest as JSON. [Define] makes
// of a [Kind] a [resource.Def] that the server can add while it runs. What a schema says is not known
// here: a [Version] has functions for that.
//
// Invariants, cited by number in the code:
//
//	C1 A cached object is its metadata and the bytes of its body: no tree is kept with it.
//	C2 An object knows which version it is at, whatever its kind and apiVersion say.
//	C3 Bodies that were handed out are not changed, but by [Object.Edit] of who owns the object.
package custom
