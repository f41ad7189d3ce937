package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
)

// Pin says which key a certificate is for, in a text that is safe in names and
// URLs: the SHA-256 of its SubjectPublicKeyInfo in base64url.
func Pin(cert *x509.Certificate) string { return pin(cert.RawSubjectPublicKeyInfo) }

// PinOf is the pin of all certificates for a public key.
func PinOf(public crypto.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("pin of a key: %w", err)
	}
	return pin(der), nil
}

func pin(info []byte) string {
	sum := sha256.Sum256(info)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
