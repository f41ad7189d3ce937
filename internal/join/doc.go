// Package join is how a machine gets into a cluster, and who it is there.
//
// token.go is the token that lets it in.
package join
