package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/controller"
)

func TestACertificateIsGoodForAsLongAsAskedWithinLimits(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	year := 365 * 24 * time.Hour
	for _, c := range []struct {
		name    string
		seconds *int32
		left    time.Duration // that the authority is good for
		want    time.Duration // after now
	}{
		{"nothing asked", nil, 10 * year, year - clockSkew},
		{"an hour", new(int32(3600)), 10 * year, time.Hour},
		{"a day", new(int32(86400)), 10 * year, 24*time.Hour - clockSkew},
		{"a second", new(int32(1)), 10 * year, shortestLife},
		{"more than is usual", new(int32(2000000000)), 10 * year, year - clockSkew},
		{"more than the authority has left", new(int32(86400)), time.Hour, time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &signer{Options: Defaults()}
			begin, end := s.span(c.seconds, now, now.Add(c.left))
			if now.Sub(begin) != clockSkew || end.Sub(now) != c.want {
				t.Errorf("got from %s before until %s after, want %s and %s", now.Sub(begin), end.Sub(now), clockSkew, c.want)
			}
		})
	}
}

func TestSignersSignWithAuthoritiesOfTheirOwn(t *testing.T) {
	s := &signer{Options: Defaults()}
	s.Authorities = map[string]*pki.Authority{}
	for _, name := range []string{certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientSignerName} {
		a, err := pki.NewAuthority(name)
		if err != nil {
			t.Fatal(err)
		}
		s.Authorities[name] = a
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	asked, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.ParseCertificateRequest(asked)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range s.Authorities {
		text, err := s.sign(request, &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: name}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(text)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = cert.CheckSignatureFrom(a.Cert)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nobody signs for others, though they are known: this one would need the API.
	next, err := s.Reconcile(t.Context(), &certificatesv1.CertificateSigningRequest{
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: asked})},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}},
		},
	})
	if err != nil || next != controller.Done {
		t.Errorf("a signer without an authority: got %v, %v", next, err)
	}
}
