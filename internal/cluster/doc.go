// Package cluster wires it all: which parts run in this process, in which order,
// by plain calls. It is the only package that knows all the others; nothing but
// the commands may import it.
//
// Start at Run in cluster.go. The control plane, which needs no machine and which the
// simulation runs too, is wired in package plane.
package cluster
