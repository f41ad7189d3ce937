// Package replicaset keeps as many pods running as each ReplicaSet asks for.
//
// Start at Reconcile in replicaset.go; rank.go decides which pods go first when
// there are too many, status.go computes what is reported.
package replicaset
