package volume

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// A pod's certificate is asked of a signer by a PodCertificateRequest, with a key that
// never leaves the node and is kept in memory alone: after a restart of the node agent another one is
// asked for, and what the volume shows stays until that is there.

// certificate is what is known of one projection of a certificate. It belongs to the calls for
// its pod.
type certificate struct {
	shown   issued
	asked   asked
	refused error // for ever
	late    bool  // it was told that shown should have been replaced
	over    bool  // it was told that shown is good no more
}

// issued is a certificate with its key; zero: there is none yet.
type issued struct {
	key, chain []byte // PEM
	refresh    time.Time
	end        time.Time
}

// asked is a request that has not ended; zero: there is none.
type asked struct {
	name    string
	key     []byte
	abandon time.Time // when it counts as deleted, if it cannot be found
}

const (
	abandonAfter  = 10 * time.Minute // how long a request may stay out of sight
	overdueAfter  = 10 * time.Minute // after the time to refresh: it is told
	refreshWithin = 5 * time.Minute  // of that time, by chance, so that not all pods ask their signer at once
)

var errNotIssued = errors.New("credential bundle is not issued yet")

// certificate returns the certificate of a projection, the number-th source of its volume,
// and when to look after it again.
func (w *writer) certificate(number int, p *v1.PodCertificateProjection) (issued, time.Time, error) {
	c := w.m.certificateOf(tokenKey{w.pod.UID, w.volume.Name, strconv.Itoa(number)})
	if err := w.settle(c); err != nil {
		return issued{}, time.Time{}, err
	}
	now := time.Now()
	if c.asked.name == "" && (c.shown.chain == nil || !now.Before(c.shown.refresh)) {
		if err := w.ask(c, p); err != nil && (c.shown.chain == nil || !unasked(err)) {
			return issued{}, time.Time{}, err
		} else if err != nil {
			w.m.log.Warn("refresh the certificate of a pod", "pod", w.pod.Namespace+"/"+w.pod.Name, "err", err)
			return c.shown, now.Add(fetchAgain), nil
		}
	}
	if c.shown.chain == nil {
		return issued{}, time.Time{}, errNotIssued
	}
	return c.shown, w.lookAfter(c, now), nil
}

func (m *Manager) certificateOf(k tokenKey) *certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.mu.certificates[k]
	if c == nil {
		c = &certificate{}
		m.mu.certificates[k] = c
	}
	return c
}

// settle looks what became of the request, if there is one.
func (w *writer) settle(c *certificate) error {
	if c.refused != nil || c.asked.name == "" {
		return c.refused
	}
	r, err := w.src.CertificateRequest(w.ctx, w.pod, c.asked.name)
	if w.src.IsMissing(err) {
		if time.Now().After(c.asked.abandon) {
			c.asked = asked{}
		}
		return nil // it may not be seen yet
	}
	if err != nil {
		return fmt.Errorf("while getting PodCertificateRequest: %w", err)
	}
	for _, cond := range r.Status.Conditions {
		var how, what string
		switch cond.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			return c.take(&r.Status)
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			how, what = "was denied", "was permanently denied"
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			how, what = "failed", "failed"
		default:
			continue
		}
		c.refused = fmt.Errorf("PodCertificateRequest %s: reason=%q message=%q", what, cond.Reason, cond.Message)
		w.src.TellOf(w.pod, cond.Type, fmt.Sprintf("PodCertificateRequest %s/%s %s, reason=%q, message=%q", r.Namespace, r.Name, how, cond.Reason, cond.Message))
	}
	return c.refused
}

// take shows what was issued from now on.
func (c *certificate) take(s *certificatesv1.PodCertificateRequestStatus) error {
	chain := certificatesOf(s.CertificateChain)
	if chain == nil || s.BeginRefreshAt == nil || s.NotAfter == nil {
		return errors.New("PodCertificateRequest was issued without a certificate chain, or without the times that it is good for")
	}
	refresh, end := s.BeginRefreshAt.Time, s.NotAfter.Time
	if spread := min(refreshWithin, end.Sub(refresh)/2); spread > 0 {
		refresh = refresh.Add(mathrand.N(spread))
	}
	*c = certificate{shown: issued{key: c.asked.key, chain: chain, refresh: refresh, end: end}}
	return nil
}

// certificatesOf are the certificates of a chain, without what may stand between them.
func certificatesOf(chain string) (out []byte) {
	for block, rest := pem.Decode([]byte(chain)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
		}
	}
	return out
}

// ask makes a key and asks for a certificate of it.
func (w *writer) ask(c *certificate, p *v1.PodCertificateProjection) error {
	key, err := newKey(p.KeyType)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode the key of a pod: %w", err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return fmt.Errorf("prove to have the key of a pod: %w", err)
	}
	name, err := w.src.RequestCertificate(w.ctx, w.pod, p, stub)
	if err != nil {
		return fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	c.asked = asked{name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), time.Now().Add(abandonAfter)}
	return nil
}

// newKey makes a key of a type that the API knows.
func newKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown key type %q", kind)
}

// lookAfter tells of a certificate that its signer does not replace in time, and says when to
// look again: the answer to a request is told when it comes.
func (w *writer) lookAfter(c *certificate, now time.Time) time.Time {
	if c.asked.name == "" {
		return c.shown.refresh
	}
	again := c.asked.abandon
	if !again.After(now) {
		again = now.Add(abandonAfter) // the request is there, and waits for its signer
	}
	for _, warning := range []struct {
		told            *bool
		at              time.Time
		reason, message string
	}{
		{&c.late, c.shown.refresh.Add(overdueAfter), "CertificateOverdueForRefresh", "PodCertificate refresh overdue"},
		{&c.over, c.shown.end, "CertificateExpired", "PodCertificate expired"},
	} {
		switch {
		case *warning.told:
		case now.Before(warning.at):
			if warning.at.Before(again) {
				again = warning.at
			}
		default:
			*warning.told = true
			w.src.TellOf(w.pod, warning.reason, warning.message)
		}
	}
	return again
}

// podCertificate adds a certificate with its key, as one file or as two.
func (w *writer) podCertificate(number int, p *v1.PodCertificateProjection, mode int32) error {
	c, again, err := w.certificate(number, p)
	if err != nil {
		return err
	}
	w.again = Sooner(w.again, again)
	for _, f := range []struct {
		path string
		data []byte
	}{
		{p.CredentialBundlePath, append(append([]byte{}, c.key...), c.chain...)},
		{p.KeyPath, c.key},
		{p.CertificateChainPath, c.chain},
	} {
		if f.path == "" {
			continue
		}
		if err := w.add(f.path, w.guarded(f.data, mode)); err != nil {
			return err
		}
	}
	return nil
}
