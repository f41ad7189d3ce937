// Package ingress says that Ingresses are obeyed by the edges of nodes, and how: the class that
// they get, the service by which nodes know that an edge is needed, the addresses in their status,
// and events of what of them is not obeyed.
//
// It obeys nothing itself: that is the business of package edgefeed, on each node. Where no node is
// this program's, there is no class, and Ingresses have no effect.
package ingress
