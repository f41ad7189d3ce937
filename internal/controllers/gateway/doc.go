// Package gateway has Gateways served by the edges of nodes: it brings the objects to the pure package of the same
// name, and writes what that says: statuses, the Service of type LoadBalancer by which clients reach a Gateway, whose
// endpoints are the nodes, and a Secret with what edges are told.
//
// While no kind of the Gateway API is served nothing is done. The kinds may be defined by anybody; with --gateway-api
// they are defined here, and a definition that somebody else has made is left as it is.
package gateway
