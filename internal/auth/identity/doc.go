// Package identity is whom a server believes, as the operator has said by flags: [Options].
//
// known.go makes of them what is asked about tokens; keys.go follows the keys of the cluster's own
// tokens, which are exchanged while the server runs, unless package signer has another program sign them. What is done with a token of each kind is for packages
// authn and oidc, whom certificates are believed of for package cluster.
package identity
