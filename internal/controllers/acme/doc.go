// Package acme has an ACME server (RFC 8555) sign the certificates of Ingresses, Gateways and ListenerSets that want it, and keeps
// them in the Secrets that these name.
//
//	plan    whether a Secret is to be filled, for which hosts: pure
//	order   one certificate, by the library
//	asker   who wants a Secret filled: Ingresses, and Gateways of our class, with their ListenerSets, once they have an address
//	acme    the controller: when to try, what people are told
//
// A key of the controller is a Secret. Challenges are those of HTTP (HTTP-01), and need no state: what is answered is the
// token that is asked for and the thumbprint of the account's key, which is the cluster's only one. The thumbprint is an annotation of the Ingress or Gateway, of a ListenerSet
// that of its Gateway; the edges of all nodes answer by it, whichever is asked.
package acme
