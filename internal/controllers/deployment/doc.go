// Package deployment rolls templates out: it gives every revision of a
// Deployment's pod template a ReplicaSet and moves the replicas from the old ones
// to the new one as the strategy says.
//
// Start at Reconcile in deployment.go. plan.go is the arithmetic (pure: sets in,
// new sizes out), revision.go numbers and finds revisions, status.go computes
// what is reported.
package deployment
