package authn

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// certificates knows clients by their certificates: the common name is the
// user, the organizations are the groups, and the UID may be there, too. The TLS layer has checked that the
// client has the key, but not who signed.
type certificates struct {
	roots *x509.CertPool
	nodes *NodeAccess // nil: nodes are believed for as long as their certificates are good
	// expiry is told how long a certificate will be good; nil: nobody is told.
	expiry prometheus.Observer

	mu struct {
		sync.RWMutex
		known map[[sha256.Size]byte]known // verified, by digest
	}
}

type known struct {
	user  *user.DefaultInfo
	until time.Time
}

// Checking signatures takes longer than the rest of a request: what was found
// out is kept, for as long as the certificates are good. Whether the cluster still
// knows a node is asked each time.
const maxKnown = 4096

func (c *certificates) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	u, err := c.user(leaf, r.TLS.PeerCertificates[1:])
	if u == nil || err != nil {
		return nil, false, err
	}
	if c.expiry != nil {
		c.expiry.Observe(time.Until(leaf.NotAfter).Seconds())
	}
	if c.nodes != nil {
		if err := c.nodes.good(r.Context(), leaf); err != nil {
			return nil, false, err
		}
	}
	auds, _ := authenticator.AudiencesFrom(r.Context())
	return &authenticator.Response{Audiences: auds, User: u}, true, nil
}

// user is whose certificate it is; nil: nobody's, as it has no name.
func (c *certificates) user(leaf *x509.Certificate, between []*x509.Certificate) (*user.DefaultInfo, error) {
	digest := sha256.Sum256(leaf.Raw)
	now := time.Now()
	c.mu.RLock()
	k, ok := c.mu.known[digest]
	c.mu.RUnlock()
	if ok && now.Before(k.until) {
		return k.user, nil
	}
	until, err := verify(leaf, between, c.roots)
	if err != nil {
		return nil, fmt.Errorf("verifying certificate SN=%d, SKID=%s failed: %w", leaf.SerialNumber, hex.EncodeToString(leaf.SubjectKeyId), err)
	}
	if leaf.Subject.CommonName == "" {
		return nil, nil
	}
	uid, err := uidOf(leaf)
	if err != nil {
		return nil, err
	}
	u := &user.DefaultInfo{
		Name:   leaf.Subject.CommonName,
		UID:    uid,
		Groups: leaf.Subject.Organization,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(digest[:])}},
	}
	u.Groups = append(u.Groups[:len(u.Groups):len(u.Groups)], user.AllAuthenticated)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.known == nil || len(c.mu.known) >= maxKnown {
		c.mu.known = map[[sha256.Size]byte]known{}
	}
	c.mu.known[digest] = known{u, until}
	return u, nil
}

// uidType is the attribute of a certificate's subject that says the UID of the user (KEP-4828).
var uidType = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// uidOf is the UID that a certificate names; empty: it names none.
func uidOf(cert *x509.Certificate) (string, error) {
	var all []string
	for _, a := range cert.Subject.Names {
		if a.Type.Equal(uidType) {
			uid, _ := a.Value.(string) // a certificate with anything else cannot be read
			all = append(all, uid)
		}
	}
	switch {
	case len(all) == 0:
		return "", nil
	case len(all) > 1:
		return "", fmt.Errorf("expected 1 UID, but found multiple: %v", all)
	case all[0] == "":
		return "", errors.New("UID cannot be an empty string")
	}
	return all[0], nil
}

// verify checks that the certificate is a client's and signed by the roots; it
// returns the end of the first certificate of its chain to end.
func verify(leaf *x509.Certificate, between []*x509.Certificate, roots *x509.CertPool) (time.Time, error) {
	o := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, Intermediates: x509.NewCertPool()}
	for _, c := range between {
		o.Intermediates.AddCert(c)
	}
	chains, err := leaf.Verify(o)
	if err != nil {
		return time.Time{}, err
	}
	until := leaf.NotAfter
	for _, c := range chains[0] {
		if c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return until, nil
}
