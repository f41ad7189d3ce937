package certificates

import (
	"crypto/x509"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/auth/pki"
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
			s := &signer{life: Defaults().Life, authority: &pki.Authority{Cert: &x509.Certificate{NotAfter: now.Add(c.left)}}}
			begin, end := s.span(c.seconds, now)
			if now.Sub(begin) != clockSkew || end.Sub(now) != c.want {
				t.Errorf("got from %s before until %s after, want %s and %s", now.Sub(begin), end.Sub(now), clockSkew, c.want)
			}
		})
	}
}
