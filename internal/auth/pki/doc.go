// Package pki keeps the keys and certificates of a cluster: the cluster's
// certificate authority, the one of front proxies, what the API server serves
// with, what it calls node agents with, the key that signs service account
// tokens, and, where there are several servers, what these know each other by. Names of
// files are those of kubeadm, where it has them.
//
// All keys are ECDSA P-256: one is made in 20 us where RSA takes 100 ms, which
// a start of one second cannot spare, and a token is signed in 25 us.
//
// [Ensure] makes what is missing and renews what ends soon. Files are written
// whole or not at all, and only their owner may read keys. A crash between a
// key and its certificate leaves a key without one: the next start makes the
// certificate again.
package pki
