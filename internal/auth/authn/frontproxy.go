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
	// Headers are the headers by which the proxy says who makes a request.
	Headers FrontProxyHeaders
}

// FrontProxyHeaders are names of headers, in any case. Of User and UID the first
// that is not empty counts; extra attributes are named by what follows a prefix. A
// list that is empty is the header of API servers.
type FrontProxyHeaders struct {
	User  []string // --requestheader-username-headers; default X-Remote-User
	UID   []string // --requestheader-uid-headers; default X-Remote-Uid
	Group []string // --requestheader-group-headers; default X-Remote-Group
	Extra []string // --requestheader-extra-headers-prefix; default X-Remote-Extra-
}

// Given reports whether any header is named.
func (h *FrontProxyHeaders) Given() bool {
	return len(h.User)+len(h.UID)+len(h.Group)+len(h.Extra) > 0
}

// Canonical returns the headers as requests have them, with the defaults.
func (h FrontProxyHeaders) Canonical() FrontProxyHeaders {
	for list, name := range map[*[]string]string{
		&h.User: "X-Remote-User", &h.UID: "X-Remote-Uid", &h.Group: "X-Remote-Group", &h.Extra: "X-Remote-Extra-",
	} {
		if len(*list) == 0 {
			*list = []string{name}
		}
		*list = slices.Clone(*list)
		for i, given := range *list {
			(*list)[i] = http.CanonicalHeaderKey(strings.TrimSpace(given))
		}
	}
	return h
}

// first is the first value that is not empty of any of the headers.
func first(r *http.Request, headers []string) string {
	for _, name := range headers {
		if value := r.Header.Get(name); value != "" {
			return value
		}
	}
	return ""
}

// extra is the name of the attribute that a header holds.
func (h *FrontProxyHeaders) extra(header string) (key string, ok bool) {
	for _, prefix := range h.Extra {
		if key, ok := strings.CutPrefix(header, prefix); ok {
			key = strings.ToLower(key)
			if plain, err := url.PathUnescape(key); err == nil {
				key = plain
			}
			return key, true
		}
	}
	return "", false
}

// authenticate believes the proxy. Its Headers are canonical.
func (f *FrontProxy) authenticate(r *http.Request) (*authenticator.Response, bool, error) {
	h := &f.Headers
	name := first(r, h.User)
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
	u := &user.DefaultInfo{Name: name, UID: first(r, h.UID), Extra: map[string][]string{}}
	for _, header := range h.Group {
		u.Groups = append(u.Groups, r.Header.Values(header)...)
	}
	for header, values := range r.Header {
		if key, ok := h.extra(header); ok {
			u.Extra[key] = append(u.Extra[key], values...)
			r.Header.Del(header)
		}
	}
	for _, header := range slices.Concat(h.User, h.UID, h.Group) {
		r.Header.Del(header)
	}
	auds, _ := authenticator.AudiencesFrom(r.Context())
	return &authenticator.Response{Audiences: auds, User: u}, true, nil
}
