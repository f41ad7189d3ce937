// Package servicecidr keeps the ranges of which Services get their addresses: it says that they
// are ready, and lets one that is deleted go only when no Service has an address that is in it
// alone. Until then nobody gets another address of it.
//
// The ranges that a cluster begins with are made by the servers, from their flags; what is in the
// cluster counts from then on. Who gets which address is the affair of the API server, and what
// has gone wrong with that, of package clusterip.
package servicecidr
