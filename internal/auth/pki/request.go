package pki

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// requestID is the extension of certificates that a request was made for through the API:
// the UID of that request. It is not critical: others pass over it.
var requestID = asn1.ObjectIdentifier{2, 25, 1802857837}

// RequestExtension says in a certificate which request it was made for.
func RequestExtension(uid string) (pkix.Extension, error) {
	value, err := asn1.MarshalWithParams(uid, "utf8")
	return pkix.Extension{Id: requestID, Value: value}, err
}

// RequestOf is the UID of the request that a certificate was made for; empty if it was
// made without one.
func RequestOf(cert *x509.Certificate) string {
	for _, e := range cert.Extensions {
		if !e.Id.Equal(requestID) {
			continue
		}
		var uid string
		if rest, err := asn1.UnmarshalWithParams(e.Value, &uid, "utf8"); err == nil && len(rest) == 0 {
			return uid
		}
	}
	return ""
}
