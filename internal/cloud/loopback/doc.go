// Package loopback is a cloud in a file: machines, zones, routes and balancers that a person
// or a test edits, and the cluster's loops read and write, as YAML. It is for trying what a
// cloud does to a cluster, and for showing what a cloud that fails does: see [World].
//
// Start at loopback.go; file.go has what the file says.
package loopback
