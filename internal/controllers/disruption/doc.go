// Package disruption keeps the status of PodDisruptionBudgets: how many pods a
// budget is about, how many of them are healthy, and so how many may be evicted.
// Evictions themselves spend from that status: they are the API server's work.
//
//   - disruption.go looks at one budget.
//   - status.go counts: a pure function.
//   - scale.go asks the owners of pods how many they want.
//   - pods.go looks after single pods: evictions that were announced and did not
//     come, and pods that several budgets select.
//
// Invariants:
//
//	PDB1 A status is written over the status that it was made from, or not at all: evictions that were granted meanwhile are not forgotten.
//	PDB2 A pod whose eviction was granted is not healthy until it is gone, or until that has taken too long.
//	PDB3 Where it is not known how many pods there should be, no eviction is allowed.
package disruption
