// Package auth answers who makes a request and what they may do. Its parts:
//
//	pki        certificate authorities, certificates, keys, kubeconfig files
//	authn      who: client certificates, service account tokens, bootstrap tokens, front proxies, nobody
//	signer     a program that signs the tokens of service accounts elsewhere
//	rbac       what: roles and bindings, rules that cover others, aggregation
//	node       what a node agent may do: only what the pods bound to its node need
//	abac       what, by a file of policies
//	webhook    what, by a server of others that is asked
//	modes      which of these decide, and in which order
//	bootstrap  the default roles and bindings, and their upkeep
//
// This package itself joins several authorizers into one. What lives here
// decides; asking the question for each request is the API server's part.
package auth
