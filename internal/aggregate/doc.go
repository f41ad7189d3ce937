// Package aggregate is the part of an API server that makes others, behind Services of the cluster,
// part of its API (aggregated APIs). Start at [Aggregator].
//
// An APIService with a service says that another server has a group-version, whatever is served
// here: requests for it are handed on (proxy.go), with who makes them in headers that the other
// server believes because of this one's certificate. Whether it can be used is found out and written
// into the APIService (check.go), and what it has becomes part of what clients are told there is
// (follow.go). For the group-versions of this server, APIServices are kept that say so (register.go).
//
// The rules:
//
//	G1 What is not aggregated costs nothing: without an APIService of another server nobody follows
//	   services or endpoints, no timer runs and no connection is open.
//	G2 Who waits is woken by events: an APIService, its service or its endpoints have changed. A server is
//	   asked again after a while only where that may change without an event.
//	G3 Requests are handed on while the APIService says that it is available, whoever has written that.
//	G4 Another server is not believed: what it says of itself counts for its own group-version alone, is
//	   bounded in size and time, and what was known of it is shown as stale while it cannot be asked.
//	G5 A request that has come through this process before is not handed on again.
//
// Endpoints are package backend's; who asks is authenticated and authorized by the API server before a
// request gets here.
package aggregate
