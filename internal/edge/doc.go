// Package edge is the process that takes HTTP from outside the cluster to pods, and what else comes to Gateways and to
// balancers that do more than pass on packets: one for each node, which outlives the program that feeds it. Start at
// [Edge.ServeHTTP].
//
// Here live listeners, TLS by the name that is asked for, balancing over endpoints, what of
// a request is refused, and the control socket by which all that comes in. Where a request goes
// is a question to package route; what the tables are made of, package edge knows nothing of. It
// imports nothing of Kubernetes.
//
// Invariants, cited by number in the code:
//
//	E1 A request is decided by one state, from its first byte to its last: a change is a new state, and one store of a pointer.
//	E2 A request is sent again, to another endpoint, only if not a byte of it has been sent.
//	E3 Whatever a client says of where it comes from is replaced by what is seen of it.
//	E4 The path that is matched is the path that is forwarded: what could be read in two ways is refused.
//	E5 No client holds anything by being slow: each wait for it has an end.
//	E6 Who feeds the process may come and go. What was said last stays in force.
package edge
