// Package cloud is for those who sell a cloud: with it a program runs Kemudi's loops over the
// vendor's implementation of k8s.io/cloud-provider's interface, with upstream's flags. All of such a program, but for
// the cloud itself, is a call of [Run] under the name that the implementation is registered by: examples/acmecloud.
//
// The cluster's servers are told --cloud-provider=external. Nothing of a vendor's is ever part of Kemudi.
package cloud
