// Package certificates approves, signs and clears away requests for
// certificates (CertificateSigningRequest) of Kubernetes' own signers.
//
// approving.go, signing.go and cleaner.go are a controller each; signers.go
// (pure) says what each signer demands of a request.
package certificates
