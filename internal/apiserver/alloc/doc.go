// Package alloc keeps values that must be unique in a cluster, such as cluster
// IPs and node ports: who holds which is stored in keys of their own, taken in
// the same transaction as the object that has them.
//
// [Tx] is what a resource's Commit sees. The in-memory view saves reading the
// store for each write; the transaction's conditions are what decides.
package alloc
