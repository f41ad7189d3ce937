// Package reach connects a server to nodes and to the pods on them, by whichever way
// there is: the network, the tunnel that the node's agent keeps, or what else it is
// given. Ways are tried in their order, each with a head start over the next, and the
// one that worked is remembered where it was not the first.
//
//	         0 ms        150 ms       300 ms
//	direct   |-------------------------------->   a firewall drops it: cancelled
//	tunnel               |--> connected           the connection that is used
//	others                            |           not tried any more
//
// Start at [Ways]. What a way is made of does not live here; who may be connected to
// whom was decided before, and whoever is reached proves himself by [Target.Prove].
// Why: docs/decisions/035-ways-to-nodes.md.
//
// Invariants, cited by number in the code:
//
//	W1 Who is reached by one way only waits for nothing else, and costs no goroutine.
//	W2 Of all tries of one target, one connection is left, or none.
//	W3 A way that was found where the first did not work goes first for five minutes, not longer: then the first may have come back.
//	W4 A connection counts when the other end has proved who it is, not before: another machine may have the address.
package reach
