// Package certificates approves, signs and clears away requests for
// certificates (CertificateSigningRequest) of Kubernetes' own signers.
//
// approving.go, serving.go, signing.go, keys.go and cleaner.go are a controller each;
// signers.go (pure) says what each signer demands of a request, names.go which machine
// may have the name of a node.
package certificates
