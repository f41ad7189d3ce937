package authn

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// FrontProxy believes the X-Remote-* headers of a proxy that shows a
// certificate of its own authority. An API server in front of this one is such
// a proxy, and this one is in front of aggregated ones.
type FrontProxy struct {
	CA *x509.CertPool
	// Names are the common names that proxies have; none: any.
	Names []string
}

// Headers by which a front proxy says for whom a request is.
const (
	headerUser  = "X-Remote-User"
	headerUID   = "X-Remote-Uid"
	headerGroup = "X-Remote-Group"
	headerExtra = "X-Remote-Extra-"
)

func (f *FrontProxy) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	name := r.Header.Get(headerUser)
	if name == "" || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	if _, err := verify(leaf, r.TLS.PeerCertificates[1:], f.CA); err != nil {
		return nil, false, nil // a client like others, whose headers mean nothing
	}
	if len(f.Names) > 0 && !slices.Contains(f.Names, leaf.Subject.CommonName) {
		return nil, false, fmt.Errorf("x509: subject with cn=%s is not in the allowed list", leaf.Subject.CommonName)
	}
	u := &user.DefaultInfo{Name: name, UID: r.Header.Get(headerUID), Groups: r.Header.Values(headerGroup), Extra: map[string][]string{}}
	for header, values := range r.Header {
		if key, ok := strings.CutPrefix(header, headerExtra); ok {
			key = strings.ToLower(key)
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			u.Extra[key] = values
		}
	}
	for header := range r.Header {
		if header == headerUser || header == headerUID || header == headerGroup || strings.HasPrefix(header, headerExtra) {
			r.Header.Del(header)
		}
	}
	auds, _ := authenticator.AudiencesFrom(r.Context())
	return &authenticator.Response{Audiences: auds, User: u}, true, nil
}
