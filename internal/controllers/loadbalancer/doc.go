// Package loadbalancer gives Services of type LoadBalancer addresses on machines that somebody
// owns: those of the nodes, or some of pools. The service proxies of the nodes do the rest by
// what the status says: there are no pods for it, and no processes but the edges of nodes, where more is asked than to
// pass on packets (core.RelayOf).
//
//	options   what --load-balancer says
//	ask       what a Service wants, by its fields and annotations
//	vendors   what the annotations of clouds mean here
//	nodes     what addresses the nodes have, and which serve a Service
//	announce  which of them answer for an address of a pool
//	book      who has which address and port: the decisions, without a clock or I/O
//	the rest  is the controller, which brings objects to the book and writes what it says
//
// Nothing but the status of Services says who has what, so that a restart and another leader find
// it there. What no cloud and no other program balances is ours; a condition of the Service
// (core.ServiceBalanced) says that it is, and why it waits.
//
// Invariants, cited by number in the code:
//
//	B1 No two Services have one port of one address.
//	B2 A Service keeps the addresses that it has, as long as they may be its.
//	B3 Who has an address keeps it from who comes later; who waits for it is looked at again when it goes.
//	B4 Nothing is done to a Service that is not ours, but that what we gave it is taken back.
package loadbalancer
