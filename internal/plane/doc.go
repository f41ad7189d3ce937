// Package plane wires the control plane: store, API server, admission, controllers
// and scheduler, as a server and the simulation run it. What a server is beyond
// that (keys, listeners, a node) is package cluster.
//
// Start at [New] and [Plane.Run].
package plane
