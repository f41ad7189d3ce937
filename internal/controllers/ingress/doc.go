// Package ingress tells people and nodes of the Ingresses that edges obey. It makes the class, and the
// service by which nodes know that an edge is needed; it writes the addresses into the status of each
// Ingress, and an event for whatever of it is not obeyed.
//
// It obeys nothing itself: that is the business of package edgefeed, on each node. Where no node is
// this program's, there is no class, and Ingresses have no effect.
package ingress
