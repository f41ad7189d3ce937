// Package device hands out the devices of a node: device plugins, programs of others, say
// which there are, and what a container needs to use one.
//
// Start at [Manager]. What lives here is which plugins there are (endpoint.go, register.go),
// what the node has of their resources (status.go), which devices a pod gets, once, when the node
// takes it on (allocate.go decides by the pure [choose]), and what its containers are started with
// for that (answer.go). What a plugin has answered is on disk (package checkpoint), so that
// neither a new agent nor a new container asks for other devices.
//
// Where what a pod has for itself is to be near to each other, package pin says to which NUMA nodes (hints.go tells it which would do).
//
// Invariants, cited by number in the code:
//
//	V1 No device is given to two pods; a pod's own init containers hand theirs on, unless they go on running.
//	V2 A container has the same devices for as long as its pod lives, whatever becomes of the agent, of the plugin or of the container.
//	V3 A plugin that does not answer holds up only pods that ask for its devices, and those for no longer than a deadline.
package device
