// Package nodelifecycle notices nodes that stopped reporting, says so in their
// conditions, and taints nodes according to their conditions. Pods leave by the
// taints (package tainteviction).
//
// Start at Reconcile in nodelifecycle.go; taints.go is pure.
package nodelifecycle
