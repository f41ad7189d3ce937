// Package replicaset keeps as many pods running as each ReplicaSet asks for, and
// each ReplicationController.
//
// Start at Reconcile in replicaset.go, which serves both kinds; status.go computes
// what is reported, replicationcontroller.go looks at a ReplicationController as a
// ReplicaSet. Which pods go first when there are too many is workload.Rank.
package replicaset
