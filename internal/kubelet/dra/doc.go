// Package dra has drivers make the devices of resource claims ready on a node before a pod
// starts that uses them, and take that back when the last such pod has ended (dynamic resource
// allocation, KEP-4381).
//
// Start at [Manager.Prepare]. What lives here is which drivers the node has (driver.go), which
// claims they have made ready for which pods (claim.go), on disk as well, and the slices of drivers
// that are gone, which are deleted (slices.go). Which devices a claim gets is the scheduler's business, what a
// container becomes by a CDI device the runtime's.
//
// Invariants, cited by number in the code:
//
//	W1 A claim is on disk before its driver is asked to make it ready, and until the driver has taken that back: so nothing is left behind, whenever the agent dies.
//	W2 A pod does not leave the node before its claims have been taken back, unless other pods use them.
package dra
