// Package rootca tells pods by which certificates the API server is known: in every namespace by the
// ConfigMap kube-root-ca.crt, which they mount beside their tokens (rootca.go), and for the whole cluster by
// a ClusterTrustBundle of the signer kubernetes.io/kube-apiserver-serving, which they may project (bundle.go).
package rootca
