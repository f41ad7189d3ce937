package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// authorities are what a way of knowing clients comes to. They are read-only.
type authorities struct {
	site    string // whose it is
	roots   *x509.CertPool
	revoked []revoked
	checks  bool // what was taken back is looked at
	subject *regexp.Regexp
}

// revoked is what an authority has taken back.
type revoked struct {
	*x509.RevocationList
	serials map[string]bool
}

// proofsAfter returns what the ways of knowing clients come to after a change.
func proofsAfter(old *state, c *route.Change) map[*route.Proof]*authorities {
	if len(c.Sites) == 0 && !c.Whole {
		return old.proofs
	}
	now := map[*route.Proof]*authorities{}
	if !c.Whole {
		for p, a := range old.proofs {
			if _, changed := c.Sites[a.site]; !changed {
				now[p] = a
			}
		}
	}
	for key, s := range c.Sites {
		if s != nil && s.Options != nil && s.Options.Proof != nil {
			now[s.Options.Proof] = newAuthorities(key, s.Options.Proof)
		}
	}
	return now
}

func newAuthorities(site string, p *route.Proof) *authorities {
	a := &authorities{site: site, roots: x509.NewCertPool(), checks: len(p.Revoked) > 0}
	a.roots.AppendCertsFromPEM(p.Authorities)
	if p.Subject != "" {
		var err error
		if a.subject, err = regexp.Compile(p.Subject); err != nil {
			a.subject = nobody // who made the site has said so
		}
	}
	for rest := p.Revoked; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return a
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			continue // whose certificates are let in by no list then
		}
		r := revoked{list, map[string]bool{}}
		for i := range list.RevokedCertificateEntries {
			r.serials[list.RevokedCertificateEntries[i].SerialNumber.String()] = true
		}
		a.revoked = append(a.revoked, r)
	}
}

// nobody matches no name.
var nobody = regexp.MustCompile(`[^\s\S]`)

// asking is how TLS is spoken with a client that is to show a certificate; nil: as with all others. What it shows is looked at when it asks
// for something: so that it can be told what is wrong.
func (e *Edge) asking(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	s := e.state.Load()
	if len(s.proofs) == 0 {
		return nil, nil // which is what package tls takes for "as with all others"
	}
	for _, p := range s.table.Proofs(serverName(hello)) {
		if p.Asks() {
			c := e.tlsConfig()
			c.ClientAuth = tls.RequestClientCert
			if p.Mode != route.AnyAuthority {
				c.ClientCAs = s.proofs[p].roots // that browsers offer the right ones
			}
			c.SessionTicketsDisabled = true // one of another host, or of before a change, must not stand for a certificate
			return c, nil
		}
	}
	return nil, nil
}

// identityKey is the key of a connection's identity in the contexts of its requests.
type identityKey struct{}

func withIdentity(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, identityKey{}, &identity{})
}

// identity is what was found out about the client of a connection.
type identity struct {
	mu struct {
		sync.Mutex
		found map[*route.Proof]error // nil: it is known
	}
}

func (i *identity) known(a *authorities, p *route.Proof, chain []*x509.Certificate) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	err, done := i.mu.found[p]
	if !done {
		err = a.verify(chain, p.Depth)
		if i.mu.found == nil {
			i.mu.found = map[*route.Proof]error{}
		}
		i.mu.found[p] = err
	}
	return err
}

var (
	errDeep      = errors.New("certificate chain too long")
	errNoList    = errors.New("unable to get certificate CRL")
	errTakenBack = errors.New("certificate revoked")
)

// verify says what is wrong with the certificates of a client.
func (a *authorities) verify(chain []*x509.Certificate, depth int) error {
	o := x509.VerifyOptions{Roots: a.roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	ways, err := chain[0].Verify(o)
	if err != nil {
		return err
	}
	err = errDeep
	for _, way := range ways {
		if len(way) > depth+2 { // the client's and the authority's do not count
			continue
		}
		if err = a.current(way); err == nil {
			return nil
		}
	}
	return err
}

// current says whether a certificate of a chain was taken back, or whether nobody can say.
func (a *authorities) current(chain []*x509.Certificate) error {
	if !a.checks {
		return nil
	}
	now := time.Now()
	for n, c := range chain[:len(chain)-1] {
		said := false
		for _, list := range a.revoked {
			if string(list.RawIssuer) != string(c.RawIssuer) || list.CheckSignatureFrom(chain[n+1]) != nil || !list.NextUpdate.IsZero() && list.NextUpdate.Before(now) {
				continue
			}
			if said = true; list.serials[c.SerialNumber.String()] {
				return errTakenBack
			}
		}
		if !said {
			return errNoList
		}
	}
	return nil
}

// shown is what upstreams are told of a client's certificate.
type shown struct {
	verdict string
	leaf    *x509.Certificate // nil: it has none
}

// proved says whether a client is known as the host wants it; if not, the request has been answered.
func (x *exchange) proved(a *answer, r *http.Request) bool {
	p := x.target.Proof
	if p == nil {
		return true
	}
	x.shown = &shown{verdict: "NONE"}
	if p.Mode == route.NotAsked {
		return true
	}
	if !p.Asks() {
		x.e.refuse(a, "certificate", http.StatusForbidden)
		return false
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		x.shown.leaf = r.TLS.PeerCertificates[0]
	}
	if r.TLS != nil && !slices.Contains(x.s.table.Proofs(strings.ToLower(strings.TrimSuffix(r.TLS.ServerName, "."))), p) {
		x.e.refuse(a, "misdirected", http.StatusMisdirectedRequest) // it was asked for another host's, if at all
		return false
	}
	known := x.s.proofs[p]
	if x.shown.leaf == nil {
		if p.Mode == route.Required {
			x.unproved(a, p, "No required SSL certificate was sent")
			return false
		}
	} else {
		who, _ := r.Context().Value(identityKey{}).(*identity)
		err := who.known(known, p, r.TLS.PeerCertificates)
		if err != nil && !(p.Mode == route.AnyAuthority && errors.As(err, new(x509.UnknownAuthorityError))) {
			x.e.o.Log.Debug("client is not known by its certificate", "ingress", known.site, "err", err)
			x.unproved(a, p, "The SSL certificate error")
			return false
		}
		x.shown.verdict = verdict(x.shown.leaf, err)
	}
	if known.subject != nil && (x.shown.leaf == nil || !known.subject.MatchString(distinguished(x.shown.leaf.RawSubject))) {
		x.e.metrics.refused.WithLabelValues("certificate").Inc()
		x.e.answer(a, http.StatusForbidden, "client certificate unauthorized")
		return false
	}
	return true
}

func verdict(leaf *x509.Certificate, err error) string {
	switch {
	case err == nil:
		return "SUCCESS"
	case string(leaf.RawIssuer) == string(leaf.RawSubject):
		return "FAILED:self-signed certificate"
	}
	return "FAILED:unable to verify the first certificate"
}

// unproved answers a client that is not known.
func (x *exchange) unproved(a *answer, p *route.Proof, text string) {
	x.e.metrics.refused.WithLabelValues("certificate").Inc()
	a.Header().Set("Connection", "close") // it is asked for a certificate once in a connection
	if p.Page != "" {
		x.redirect(a, p.Page, http.StatusFound)
		return
	}
	x.e.answer(a, http.StatusBadRequest, text)
}

// tell puts what is known of a client into the headers that an upstream gets.
func (s *shown) tell(h http.Header, pass bool) {
	h["Ssl-Client-Verify"] = []string{s.verdict}
	if s.leaf == nil {
		return
	}
	h["Ssl-Client-Subject-Dn"] = []string{distinguished(s.leaf.RawSubject)}
	h["Ssl-Client-Issuer-Dn"] = []string{distinguished(s.leaf.RawIssuer)}
	if pass {
		text := url.QueryEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.leaf.Raw})))
		h["Ssl-Client-Cert"] = []string{strings.ReplaceAll(text, "+", "%20")}
	}
}
