// Package pin gives pods, when the node takes them on, what is theirs alone: devices of plugins, processors and memory,
// so that they are near to each other if the node is to see to that. Upstream's topology manager does the same.
//
// Start at [Pins]. Who has what is known by packages device, cpus and memory, which are asked one after another; which NUMA nodes
// suit them all is decided by package numa. What lives here is the order in which they are asked, and what containers are held to for
// what they have got.
//
// Invariants, cited by number in the code:
//
//	P1 A pod gets all that is to be its own, or nothing of it.
//	P2 From the decision on which NUMA nodes a pod gets processors and memory until it has them, nobody else gets any.
//	P3 A pod that asks for no devices does not wait for plugins.
package pin
