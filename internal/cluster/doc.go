// Package cluster wires it all: which parts run in this process, in which order,
// by plain calls. It is the only package that knows all the others; nothing but
// the commands and the simulation may import it.
//
// Start at Run in cluster.go (a whole server) or at ControlPlane in
// controlplane.go (the part that needs no machine: store, API, controllers,
// scheduler), which the simulation runs too.
package cluster
