// Package gateway makes of Gateways, and of the routes and policies that belong to them, what edges serve, and what
// their statuses say.
//
// Start at [Compile]: all objects in, tables and statuses out, without a clock, a socket or a write. What it makes for
// edges is a [Table] for each Gateway, which goes to the nodes in a Secret; there [Model] makes changes of it, with
// the endpoints that the node knows. The definitions of the kinds are [Definitions].
//
// Invariants, cited by number in the code:
//
//	W1 What is wrong with one object is told by its status, and stops nothing else.
//	W2 Nothing of another namespace is used that this one does not grant.
//	W3 Of two that want the same, the older one has it, then the one whose name comes first.
//	W4 What cannot be done as a route says is answered by an error, never by doing something else.
package gateway
