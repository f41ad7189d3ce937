// Package certificates declares the resources of the API group certificates.k8s.io: requests for
// certificates. Signing is not here.
package certificates
