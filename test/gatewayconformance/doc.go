// Package gatewayconformance is a module of the conformance suite of the Gateway API, as a test runs it against Kemudi: the
// test of this package is the suite, of which KUBECONFIG says against which cluster and the suite's own flags what of it.
// Its go.mod names the program of the suite's backends as a tool; the folder coredns has the one that its backend of
// UDP runs.
//
// Nothing of it is part of Kemudi.
package gatewayconformance
