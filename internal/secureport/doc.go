// Package secureport serves what a part of the cluster tells of itself (health, metrics, profiles)
// over TLS, by upstream's paths and flags, to those who may have it: the API server says who they are,
// and what they may.
//
// Start at [Options.Serve]; gate.go is who stands before the paths. Nothing is asked of the API server until somebody
// comes who is to be asked about.
package secureport
