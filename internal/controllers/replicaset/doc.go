// Package replicaset keeps as many pods running as each ReplicaSet asks for.
//
// Start at Reconcile in replicaset.go; status.go computes what is reported. Which pods
// go first when there are too many is workload.Rank.
package replicaset
