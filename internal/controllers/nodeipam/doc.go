// Package nodeipam gives every node its share of the cluster's pod addresses.
//
// Start at nodeipam.go; shares.go keeps who has what, and who waits for a node
// to go because nothing was left.
package nodeipam
