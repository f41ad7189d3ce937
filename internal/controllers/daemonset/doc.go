// Package daemonset keeps one pod of each DaemonSet on every node that fits.
//
// Start at Reconcile in daemonset.go. The core is pure: fit.go says on which nodes
// pods may run, plan.go what to create and delete next, status.go what is
// reported. pod.go makes the pods, each for one node, where the scheduler binds
// it; backoff.go holds back those that fail again and again.
package daemonset
