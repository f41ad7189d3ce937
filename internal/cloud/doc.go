// Package cloud has the cloud providers that are built in, by name: [Open]. Each is a package
// below that implements the interface of k8s.io/cloud-provider; what the cluster does with
// one is in controllers/cloud.
//
// A cloud that somebody sells is not for here: its vendor links the loops into a program of
// the vendor's own.
package cloud
