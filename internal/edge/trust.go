package edge

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// trusted has a transport for each way of knowing backends.
type trusted struct {
	mu struct {
		sync.Mutex
		by map[string]*http.Transport // by trustKey and the certificate that is shown
	}
}

// trustKey tells apart backends that are known in other ways.
func trustKey(p route.Protocol, trust *route.Trust) string {
	data, err := json.Marshal(trust)
	if err != nil {
		panic(fmt.Sprintf("a way of knowing a backend that is no JSON: %v", err))
	}
	sum := sha256.Sum256(data)
	return string(p) + " " + hex.EncodeToString(sum[:])
}

// keep forgets those that are not used any more.
func (t *trusted) keep(used map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, one := range t.mu.by {
		if !used[key] {
			delete(t.mu.by, key)
			one.CloseIdleConnections()
		}
	}
}

func (t *trusted) get(key string) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.by[key]
}

func (t *trusted) put(key string, one *http.Transport) *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if was := t.mu.by[key]; was != nil {
		return was
	}
	if t.mu.by == nil {
		t.mu.by = map[string]*http.Transport{}
	}
	t.mu.by[key] = one
	return one
}

// transport is the one to the endpoints that get the request.
func (x *exchange) transport() *http.Transport {
	if x.backend == nil {
		return x.transportFor(x.protocol, x.o.Trust)
	}
	return x.transportFor(x.protocol, x.backend.Trust)
}

// way is one in which backends are known, as the tables of a state have it: to go by the
// pointer spares each request a [trustKey].
type way struct {
	protocol route.Protocol
	trust    *route.Trust
}

// transportFor is the one to endpoints that speak a protocol and are known as trust says; nil: they are not.
func (x *exchange) transportFor(p route.Protocol, trust *route.Trust) *http.Transport {
	if trust == nil {
		return x.e.forward.transports[p]
	}
	if t, ok := x.s.ways.Load(way{p, trust}); ok {
		return t.(*http.Transport)
	}
	t := x.e.transport(p, trust)
	x.s.ways.Store(way{p, trust}, t)
	return t
}

// transport is the one to endpoints that speak a protocol and are known as trust says.
func (e *Edge) transport(p route.Protocol, trust *route.Trust) *http.Transport {
	key := trustKey(p, trust)
	if t := e.forward.trusted.get(key); t != nil {
		return t
	}
	t := newTransport(p)
	t.TLSClientConfig = e.known509(trust)
	return e.forward.trusted.put(key, t)
}

// known509 is how a backend proves that it is the one that is meant.
func (e *Edge) known509(trust *route.Trust) *tls.Config {
	roots := x509.NewCertPool()
	if len(trust.Authorities) == 0 {
		if system, err := x509.SystemCertPool(); err == nil {
			roots = system
		}
	} else {
		roots.AppendCertsFromPEM(trust.Authorities)
	}
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: trust.Name,
		InsecureSkipVerify: true, // it is verified below: names may be others than the one that is asked for
		VerifyConnection: func(s tls.ConnectionState) error {
			if trust.Unknown {
				return nil
			}
			return verify(s.PeerCertificates, roots, trust)
		},
	}
	if trust.Certificate != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if cert := e.state.Load().certs[trust.Certificate]; cert != nil {
				return cert, nil
			}
			return &tls.Certificate{}, nil
		}
	}
	return c
}

// verify says what is wrong with the certificates of a backend.
func verify(chain []*x509.Certificate, roots *x509.CertPool, trust *route.Trust) error {
	if len(chain) == 0 {
		return errors.New("the backend shows no certificate")
	}
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	leaf := chain[0]
	if _, err := leaf.Verify(o); err != nil {
		return err
	}
	if len(trust.Hosts) == 0 && len(trust.URIs) == 0 {
		return leaf.VerifyHostname(trust.Name)
	}
	for _, host := range trust.Hosts {
		if slices.Contains(leaf.DNSNames, host) || leaf.VerifyHostname(host) == nil {
			return nil
		}
	}
	for _, u := range leaf.URIs {
		if slices.Contains(trust.URIs, u.String()) {
			return nil
		}
	}
	return errors.New("the certificate of the backend has none of the names that are wanted")
}
