// Command sampleserver is upstream's sample of an aggregated API server, k8s.io/sample-apiserver, with an
// etcd of its own in the same process: a test makes it part of the API of a Kemudi, as certified clusters
// are tested. It takes upstream's flags. SAMPLESERVER_DIR is the directory of the etcd, SAMPLESERVER_ETCD and
// SAMPLESERVER_PEERS are the URLs that it listens at; they may be those of Unix sockets (unix://...).
//
// Nothing of it is part of Kemudi.
package main
