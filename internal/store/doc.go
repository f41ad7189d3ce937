// Package store is a revisioned key-value store with compare-and-set
// transactions and one ordered change feed. It knows bytes, keys and revisions,
// and nothing of Kubernetes kinds.
//
// Start at [Store]. Two implementations pass the suite in storetest: etcd
// (embedded, in process, the only durable one) and mem (for the simulated
// cluster and for tests).
//
// Invariants, cited by number in the code and in storetest:
//
//	S1 Every committed transaction that writes has one revision, larger than all before it.
//	S2 The feed delivers every write once, in revision order, and all writes of one revision together.
//	S3 A List without Rev is linearizable; with Rev it shows exactly the state at that revision.
//	S4 A transaction whose conditions do not hold changes nothing.
//	S5 A revision below the compaction point answers ErrCompacted, for reads and feeds alike.
package store
