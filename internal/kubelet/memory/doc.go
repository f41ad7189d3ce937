// Package memory sets memory and huge pages of NUMA nodes aside for containers: the policy that upstream calls Static.
//
// Start at [Manager]. What is known is which container has how much of which nodes together (blocks.go, pure); how much is
// left follows from that. Containers that have something are held to its nodes. A node without the policy has no Manager, and nothing
// of all this.
//
// Invariants, cited by number in the code:
//
//	N1 A NUMA node has memory for containers of one set of nodes only: itself, or several together.
//	N2 A container has memory of the same nodes for as long as its pod lives; what an init container had that has ended, those after it take over.
package memory
