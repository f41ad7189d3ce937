// Package egress sends what goes to nodes, pods and services through a proxy, where these are in a network that the
// server is not of, and what goes to the store or to what decides for the control plane: upstream's EgressSelectorConfiguration says which one. Start at [Read].
//
// The proxy is asked by CONNECT of HTTP, as that of the konnectivity server in its mode http-connect, or by gRPC, as
// in its other mode. Its keys and
// certificates are read when a connection is made, so that they may be renewed. Whoever is reached proves itself to who
// connects: a proxy is believed about nothing.
package egress
