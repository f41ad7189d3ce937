// Package disk holds what pods have on the machine beside their containers: volumes,
// cgroups, users, logs and small files. Start at [Disk].
//
// A nil Disk is that of a simulated node: there is nothing on it, and nothing is
// done. What is to be there, and when it goes, is decided by the pod step.
package disk
