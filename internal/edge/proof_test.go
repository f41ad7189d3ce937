package edge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/edge/route"
)

// signer signs certificates of clients.
type signer struct {
	t     *testing.T
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	chain [][]byte // what its clients show beside their own
	last  int64
}

// newSigner is one that another one has signed, or nobody.
func newSigner(t *testing.T, name string, parent *signer) *signer {
	t.Helper()
	if parent == nil {
		parent = &signer{t: t}
	}
	signed := parent.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign})
	a := &signer{t: t, cert: signed.Leaf, key: signed.PrivateKey.(*ecdsa.PrivateKey)}
	if parent.cert != nil {
		a.chain = signed.Certificate
	}
	return a
}

// issue signs a certificate; an authority without one of its own has it sign itself.
func (a *signer) issue(c *x509.Certificate) *tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	a.last++
	c.SerialNumber = big.NewInt(a.last)
	parent, by := a.cert, a.key
	if parent == nil {
		parent, by = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: append([][]byte{der}, a.chain...), PrivateKey: key, Leaf: leaf}
}

func (a *signer) client(name string) *tls.Certificate {
	return a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: []string{"A, B"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (a *signer) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// takeBack is the authority's list with these certificates.
func (a *signer) takeBack(list ...*tls.Certificate) []byte {
	a.t.Helper()
	r := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour)}
	for _, c := range list {
		r.RevokedCertificateEntries = append(r.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: c.Leaf.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, r, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// asks asks for an address of a host at the edge, with a certificate or none, under the name of another host if there is one.
func (b *bed) asks(url, name string, cert *tls.Certificate, headers ...string) (*http.Response, string) {
	b.Helper()
	c := b.client()
	t := c.Transport.(*http.Transport)
	t.TLSClientConfig.ServerName = name
	if cert != nil {
		t.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return b.send(c, r)
}

func TestClientsAreKnownByTheirCertificates(t *testing.T) {
	b := newBed(t)
	echo := b.backend(func(w http.ResponseWriter, r *http.Request) {
		cert, err := url.QueryUnescape(r.Header.Get("Ssl-Client-Cert"))
		if err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, r.Header.Get("Ssl-Client-Verify"), "|", r.Header.Get("Ssl-Client-Subject-Dn"), "|", r.Header.Get("Ssl-Client-Issuer-Dn"), "|", strings.HasPrefix(cert, "-----BEGIN CERTIFICATE-----\n"))
	})
	root, other := newSigner(t, "root", nil), newSigner(t, "other", nil)
	middle := newSigner(t, "middle", root)
	deep := newSigner(t, "deep", middle)
	ann, bob, eve := root.client("ann"), root.client("bob"), other.client("eve")
	late := root.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "late"}, NotAfter: time.Now().Add(-time.Minute)})
	server := root.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "server"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})

	sites, upstreams := map[string]*route.Site{}, map[string]*route.Upstream{"up": {Endpoints: []string{echo}}}
	site := func(key, host, path string, p *route.Proof) {
		s := &route.Site{Key: key, Rules: []route.Rule{{Host: host, Path: path, Type: route.Prefix, Upstream: "up"}}}
		if p != nil {
			p.Authorities, s.Options = root.pem(), &route.Options{Proof: p}
		}
		sites[key] = s
	}
	site("on", "on.com", "/", &route.Proof{Depth: 1})
	site("on-too", "on.com", "/too", nil)
	site("pass", "pass.com", "/", &route.Proof{Depth: 1, Mode: route.Optional, Pass: true})
	site("any", "any.com", "/", &route.Proof{Depth: 1, Mode: route.AnyAuthority})
	site("off", "off.com", "/", &route.Proof{Mode: route.NotAsked})
	site("page", "page.com", "/", &route.Proof{Page: "https://help.com/no"})
	site("name", "name.com", "/", &route.Proof{Subject: "CN=(ann|ada),"})
	site("list", "list.com", "/", &route.Proof{Depth: 1, Revoked: root.takeBack(bob)})
	site("plain", "plain.com", "/", nil)
	site("nobody", "nobody.com", "/", &route.Proof{})
	sites["nobody"].Options.Proof.Authorities = nil
	b.order(Order{Change: route.Change{Sites: sites, Upstreams: upstreams}})

	const (
		noCert  = "400 No required SSL certificate was sent"
		badCert = "400 The SSL certificate error"
		isAnn   = `200 SUCCESS|CN=ann,O=A\, B|CN=root|`
	)
	for _, tc := range []struct {
		what, url, name string
		cert            *tls.Certificate
		want            string
	}{
		{"no certificate", "https://on.com/", "", nil, noCert},
		{"no TLS", "http://on.com/", "", nil, noCert},
		{"a good certificate", "https://on.com/", "", ann, isAnn + "false"},
		{"another site of the host", "https://on.com/too", "", nil, noCert},
		{"another authority's", "https://on.com/", "", eve, badCert},
		{"one that is over", "https://on.com/", "", late, badCert},
		{"one of a server", "https://on.com/", "", server, badCert},
		{"one between", "https://on.com/", "", middle.client("near"), `200 SUCCESS|CN=near,O=A\, B|CN=middle|false`},
		{"two between", "https://on.com/", "", deep.client("far"), badCert},
		{"the name of another host", "https://on.com/", "plain.com", ann, "421 Misdirected Request"},
		{"optional, none", "https://pass.com/", "", nil, "200 NONE|||false"},
		{"optional, without TLS", "http://pass.com/", "", nil, "200 NONE|||false"},
		{"optional, good", "https://pass.com/", "", ann, isAnn + "true"},
		{"optional, bad", "https://pass.com/", "", eve, badCert},
		{"any authority, unknown", "https://any.com/", "", eve, `200 FAILED:unable to verify the first certificate|CN=eve,O=A\, B|CN=other|false`},
		{"any authority, its own", "https://any.com/", "", (&signer{t: t}).issue(&x509.Certificate{Subject: pkix.Name{CommonName: "self"}}), "200 FAILED:self-signed certificate|CN=self|CN=self|false"},
		{"any authority, over", "https://any.com/", "", late, badCert},
		{"not asked", "https://off.com/", "", ann, "200 NONE|||false"},
		{"with a page", "https://page.com/", "", nil, "302 https://help.com/no"},
		{"the name that is wanted", "https://name.com/", "", root.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "ada", OrganizationalUnit: []string{"x"}}}), "200 SUCCESS|CN=ada,OU=x|CN=root|false"},
		{"another name", "https://name.com/", "", bob, "403 client certificate unauthorized"},
		{"not taken back", "https://list.com/", "", ann, isAnn + "false"},
		{"taken back", "https://list.com/", "", bob, badCert},
		{"of whom no list says", "https://list.com/", "", middle.client("near"), badCert},
		{"no proof", "https://plain.com/", "", ann, "200 |||false"},
		{"nobody can be known", "https://nobody.com/", "", ann, "403 Forbidden"},
	} {
		res, text := b.asks(tc.url, tc.name, tc.cert, "ssl-client-verify: SUCCESS", "ssl-client-subject-dn: CN=admin")
		got := fmt.Sprint(res.StatusCode, " ", text)
		if to := res.Header.Get("Location"); to != "" {
			got = fmt.Sprint(res.StatusCode, " ", to)
		}
		if got != tc.want {
			t.Errorf("%s: got %q, want %q", tc.what, got, tc.want)
		}
	}
}

func TestWhoIsTakenBackIsRefusedOnOldConnections(t *testing.T) {
	b := newBed(t)
	root := newSigner(t, "root", nil)
	ann := root.client("ann")
	set := func(p *route.Proof) {
		p.Authorities = root.pem()
		b.serve("a.com", &route.Options{Proof: p}, b.naming("a"))
	}
	set(&route.Proof{})
	c := b.client()
	tr := c.Transport.(*http.Transport)
	tr.ForceAttemptHTTP2 = true
	tr.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return ann, nil }
	ask := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, _ := b.send(c, r)
		return res.StatusCode
	}
	if got := ask(); got != 200 {
		t.Fatalf("a client that is known: got %d, want 200", got)
	}
	set(&route.Proof{Revoked: root.takeBack(ann)})
	if got := ask(); got != 400 {
		t.Errorf("the same after it was taken back: got %d, want 400", got)
	}
}
