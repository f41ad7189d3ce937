// Package edgefeed keeps the edge of a node. It starts the process when the cluster has something for it: an
// Ingress that is obeyed, a Gateway that is served, or a balancer that does more than pass on packets. It tells the process
// by its socket what changes, and ends it when the last of them has gone. Start at [Feeder.Run].
//
// Here live the process, its socket and its cgroup, and what is followed of the API for it. What
// tables are made of is the business of packages ingress, gateway and balancer, and what becomes of a request package edge's.
//
// Invariants, cited by number in the code:
//
//	F1 Without the services that say that Ingresses are obeyed or Gateways served, or are to be
//	   relayed themselves, a node has no process for them, and follows nothing of them.
//	F2 An edge that runs is found again by its socket. It is ended only when it is not needed, or is of another version.
//	F3 The first thing an edge is told is a whole table, of a state in which all that it depends on has come: one that serves never loses
//	   a route or a certificate because the program that feeds it has just started.
package edgefeed
