// Package balancer makes of Services of type LoadBalancer that ask more of the cluster's own balancers than to pass on
// packets what the edge of a node does for them. Start at [Model].
//
// What a Service asks is core.RelayOf; that it has an address is the word of its controller, and that what comes there is
// led to the edge the affair of the service proxy, which gives up none of the client's address. Here are no sockets and
// no clock.
//
// Invariants, cited by number in the code:
//
//	L1 What is wrong with one Service, its annotations or its Secret, changes nothing for others.
//	L2 Nothing is shown or passed on in the place of what was asked for: without its certificate no connection is taken.
package balancer
