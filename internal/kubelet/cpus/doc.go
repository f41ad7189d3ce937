// Package cpus gives containers processors that nobody else has: the policy that upstream calls static.
//
// Start at [Manager]. Which processors are taken is a pure function ([Rules] and take.go), with a text test; who has
// which is kept in manager.go and on disk (package state). How several resources agree on NUMA nodes
// is package numa's, and who is asked in which order package pin's. A node without the policy has no Manager, and
// nothing of all this.
//
// Invariants, cited by number in the code:
//
//	C1 A processor belongs to one pod, or to the pool that all others share; a pod's init containers hand theirs on, unless they go on running.
//	C2 A container has the same processors for as long as its pod lives, whatever becomes of the agent or of the container.
//	C3 The pool has the reserved processors, unless they are to be strictly apart, and is never empty.
package cpus
