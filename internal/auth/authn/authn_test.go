package authn

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/auth/pki"
)

func newPKI(t testing.TB) *pki.PKI {
	t.Helper()
	p, err := pki.Ensure(pki.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// request makes a request with headers "Name: value", one a line.
func request(t testing.TB, headers string, certs ...*x509.Certificate) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://example/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			r.Header.Add(name, value)
		}
	}
	if len(certs) > 0 {
		r.TLS = &tls.ConnectionState{PeerCertificates: certs}
	}
	return r
}

func issue(t testing.TB, a *pki.Authority, s pki.Subject) *x509.Certificate {
	t.Helper()
	p, err := a.Issue(s)
	if err != nil {
		t.Fatal(err)
	}
	return p.Cert
}

// who is the user as "name [groups]", or why there is none.
func who(a authenticator.Request, r *http.Request) string {
	res, ok, err := a.AuthenticateRequest(r)
	switch {
	case err != nil:
		return "error: " + err.Error()
	case !ok:
		return "nobody"
	}
	return res.User.GetName() + " [" + strings.Join(res.User.GetGroups(), " ") + "]"
}

func TestChainFindsOutWhoAsks(t *testing.T) {
	p, stranger := newPKI(t), newPKI(t)
	client := issue(t, p.CA, pki.Subject{Name: "alice", Organizations: []string{"dev", "ops"}, Client: true})
	proxy := issue(t, p.FrontProxyCA, pki.Subject{Name: "front-proxy-client", Client: true})
	otherProxy := issue(t, p.FrontProxyCA, pki.Subject{Name: "other", Client: true})
	a := New(Options{
		ClientCA:   p.CA.Pool(),
		FrontProxy: &FrontProxy{CA: p.FrontProxyCA.Pool(), Names: []string{"front-proxy-client"}},
		Tokens:     []authenticator.Token{StaticTokens{"s3cret": &user.DefaultInfo{Name: "bob", Groups: []string{"dev"}}}},
	})
	protocol := protocolPrefix + base64.RawURLEncoding.EncodeToString([]byte("s3cret"))
	for _, c := range []struct {
		name, headers string
		cert          *x509.Certificate
		want          string
	}{
		{name: "nothing shown", want: "system:anonymous [system:unauthenticated]"},
		{name: "client certificate", cert: client, want: "alice [dev ops system:authenticated]"},
		{name: "certificate of another cluster", cert: issue(t, stranger.CA, pki.Subject{Name: "eve", Client: true}), want: "error: verifying certificate"},
		{name: "server's certificate", cert: issue(t, p.CA, pki.Subject{Name: "kube-apiserver", Server: true}), want: "error: verifying certificate"},
		{name: "certificate without a name", cert: issue(t, p.CA, pki.Subject{Client: true}), want: "system:anonymous [system:unauthenticated]"},
		{name: "certificate without a name and a token", headers: "Authorization: Bearer s3cret", cert: issue(t, p.CA, pki.Subject{Client: true}), want: "bob [dev system:authenticated]"},
		{name: "bearer token", headers: "Authorization: Bearer s3cret", want: "bob [dev system:authenticated]"},
		{name: "bearer token in other case", headers: "Authorization: bearer s3cret ", want: "bob [dev system:authenticated]"},
		{name: "bearer token and more", headers: "Authorization: Bearer s3cret more", want: "bob [dev system:authenticated]"},
		{name: "unknown token and more", headers: "Authorization: Bearer guess more", want: "error: invalid bearer token"},
		{name: "bearer token after two spaces", headers: "Authorization: Bearer  s3cret", want: "system:anonymous [system:unauthenticated]"},
		{name: "unknown token", headers: "Authorization: Bearer guess", want: "error: invalid bearer token"},
		{name: "basic authentication is not known", headers: "Authorization: Basic YTpi", want: "system:anonymous [system:unauthenticated]"},
		{name: "certificate goes before token", headers: "Authorization: Bearer guess", cert: client, want: "alice [dev ops system:authenticated]"},
		{name: "front proxy", headers: "X-Remote-User: carol\nX-Remote-Group: a\nX-Remote-Group: b", cert: proxy, want: "carol [a b system:authenticated]"},
		{name: "front proxy of another name", headers: "X-Remote-User: carol", cert: otherProxy, want: "error: x509: subject with cn=other is not in the allowed list"},
		{name: "certificate of another cluster and a token", headers: "Authorization: Bearer s3cret", cert: issue(t, stranger.CA, pki.Subject{Name: "eve", Client: true}), want: "bob [dev system:authenticated]"},
		{name: "certificate of another cluster and an unknown token", headers: "Authorization: Bearer guess", cert: issue(t, stranger.CA, pki.Subject{Name: "eve", Client: true}), want: "error: verifying certificate"},
		{name: "front proxy of another name with a token", headers: "X-Remote-User: carol\nAuthorization: Bearer s3cret", cert: otherProxy, want: "bob [dev system:authenticated]"},
		{name: "client that poses as a front proxy", headers: "X-Remote-User: carol", cert: client, want: "alice [dev ops system:authenticated]"},
		{name: "headers without certificate", headers: "X-Remote-User: carol", want: "system:anonymous [system:unauthenticated]"},
		{name: "WebSocket protocol", headers: "Upgrade: websocket\nSec-WebSocket-Protocol: v5.channel.k8s.io, " + protocol, want: "bob [dev system:authenticated]"},
		{name: "WebSocket protocol alone", headers: "Upgrade: websocket\nSec-WebSocket-Protocol: " + protocol, want: "system:anonymous [system:unauthenticated]"},
	} {
		var certs []*x509.Certificate
		if c.cert != nil {
			certs = append(certs, c.cert)
		}
		for _, again := range []string{"", ", a second time"} {
			if got := who(a, request(t, c.headers, certs...)); got != c.want && (!strings.HasPrefix(c.want, "error: ") || !strings.HasPrefix(got, c.want)) {
				t.Errorf("%s%s: got %s, want %s", c.name, again, got, c.want)
			}
		}
	}
	strict := New(Options{NoAnonymous: true})
	if got := who(strict, request(t, "")); got != "nobody" {
		t.Errorf("anonymous requests turned off: got %s", got)
	}
}

func TestCertificatesMayNameTheUIDOfTheirUser(t *testing.T) {
	p := newPKI(t)
	a := New(Options{ClientCA: p.CA.Pool()})
	for _, c := range []struct {
		name string
		uids []string
		want string
	}{
		{"none", nil, "alice: "},
		{"one", []string{"8d3f"}, "alice: 8d3f"},
		{"two", []string{"8d3f", "8d40"}, "error: expected 1 UID, but found multiple: [8d3f 8d40]"},
		{"an empty one", []string{""}, "error: UID cannot be an empty string"},
	} {
		subject := pkix.Name{CommonName: "alice"}
		for _, uid := range c.uids {
			subject.ExtraNames = append(subject.ExtraNames, pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: uid})
		}
		made, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
			SerialNumber: big.NewInt(7), Subject: subject, NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}, p.CA.Cert, p.CA.Key.Public(), p.CA.Key)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(made)
		if err != nil {
			t.Fatal(err)
		}
		res, ok, err := a.AuthenticateRequest(request(t, "", cert))
		got := fmt.Sprintf("error: %v", err)
		if err == nil && ok {
			got = res.User.GetName() + ": " + res.User.GetUID()
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestUsedCredentialsAreTakenOutOfTheRequest(t *testing.T) {
	p := newPKI(t)
	a := New(Options{
		FrontProxy: &FrontProxy{CA: p.FrontProxyCA.Pool()},
		Tokens:     []authenticator.Token{StaticTokens{"s3cret": &user.DefaultInfo{Name: "bob"}}},
	})
	r := request(t, "X-Remote-User: carol\nX-Remote-Uid: 7\nX-Remote-Group: a\nX-Remote-Extra-Example.com%2fscope: x\nX-Other: stays",
		issue(t, p.FrontProxyCA, pki.Subject{Name: "p", Client: true}))
	res, ok, err := a.AuthenticateRequest(r)
	if !ok || err != nil || res.User.GetUID() != "7" || !slices.Equal(res.User.GetExtra()["example.com/scope"], []string{"x"}) {
		t.Errorf("front proxy: got %+v, %t, %v", res, ok, err)
	}
	if len(r.Header) != 1 {
		t.Errorf("headers left: got %v, want X-Other alone", r.Header)
	}
	protocol := protocolPrefix + base64.RawURLEncoding.EncodeToString([]byte("s3cret"))
	for _, headers := range []string{"Authorization: Bearer s3cret", "Upgrade: websocket\nSec-Websocket-Protocol: a, " + protocol + "\nSec-Websocket-Protocol: b"} {
		r := request(t, headers)
		if got := who(a, r); got != "bob [system:authenticated]" {
			t.Errorf("%s: got %s", headers, got)
		}
		if r.Header.Get("Authorization") != "" || strings.Contains(r.Header.Get("Sec-WebSocket-Protocol"), protocolPrefix) {
			t.Errorf("headers left: got %v", r.Header)
		}
		if got := r.Header.Get("Sec-WebSocket-Protocol"); got != "" && got != "a,b" {
			t.Errorf("protocols left: got %s, want a,b", got)
		}
	}
}

func TestCertificateIsRefusedOnceItHasEnded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		p, err := pki.Ensure(pki.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		a := New(Options{ClientCA: p.CA.Pool()})
		cert := issue(t, p.CA, pki.Subject{Name: "alice", Client: true, Life: time.Hour})
		if got := who(a, request(t, "", cert)); got != "alice [system:authenticated]" {
			t.Errorf("at first: got %s", got)
		}
		time.Sleep(time.Hour + time.Second)
		if got := who(a, request(t, "", cert)); !strings.Contains(got, "expired") {
			t.Errorf("after its end: got %s", got)
		}
	})
}

func TestBootstrapTokens(t *testing.T) {
	secret := func(change func(*corev1.Secret)) *corev1.Secret {
		s := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"},
			Type:       "bootstrap.kubernetes.io/token",
			Data: map[string][]byte{
				"token-id": []byte("abcdef"), "token-secret": []byte("0123456789abcdef"), "usage-bootstrap-authentication": []byte("true"),
				"auth-extra-groups": []byte("system:bootstrappers:kemudi:agents"), "expiration": []byte(time.Now().Add(time.Hour).Format(time.RFC3339)),
			},
		}
		change(s)
		return s
	}
	const token, refused = "abcdef.0123456789abcdef", "error: invalid bearer token"
	for _, c := range []struct {
		name, token string
		change      func(*corev1.Secret)
		want        string
	}{
		{"good", token, func(*corev1.Secret) {}, "system:bootstrap:abcdef [system:bootstrappers system:bootstrappers:kemudi:agents system:authenticated]"},
		{"no end", token, func(s *corev1.Secret) { delete(s.Data, "expiration"); delete(s.Data, "auth-extra-groups") }, "system:bootstrap:abcdef [system:bootstrappers system:authenticated]"},
		{"wrong secret", "abcdef.0123456789abcdee", func(*corev1.Secret) {}, refused},
		{"unknown", "aaaaaa.0123456789abcdef", func(*corev1.Secret) {}, refused},
		{"no bootstrap token", "something", func(*corev1.Secret) {}, refused},
		{"expired", token, func(s *corev1.Secret) { s.Data["expiration"] = []byte("2020-01-01T00:00:00Z") }, refused},
		{"bad end", token, func(s *corev1.Secret) { s.Data["expiration"] = []byte("tomorrow") }, refused},
		{"for signing alone", token, func(s *corev1.Secret) { s.Data["usage-bootstrap-authentication"] = []byte("false") }, refused},
		{"other type", token, func(s *corev1.Secret) { s.Type = "Opaque" }, refused},
		{"being deleted", token, func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, refused},
		{"other id within", token, func(s *corev1.Secret) { s.Data["token-id"] = []byte("aaaaaa") }, refused},
		{"group that is none", token, func(s *corev1.Secret) { s.Data["auth-extra-groups"] = []byte("system:masters") }, refused + "\nsecret bootstrap-token-abcdef: bootstrap group \"system:masters\" is invalid"},
	} {
		a := New(Options{Tokens: []authenticator.Token{BootstrapTokens{Secret: func(name string) *corev1.Secret {
			if s := secret(c.change); s.Name == name {
				return s
			}
			return nil
		}}}})
		if got := who(a, request(t, "Authorization: Bearer "+c.token)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBootstrapTokenIsReadAsItIsStored(t *testing.T) {
	for _, want := range []BootstrapToken{
		{ID: "abcdef", Secret: "0123456789abcdef", Authenticates: true, Signs: true, groups: AgentsGroup},
		{
			ID: "abcdef", Secret: "0123456789abcdef", Authenticates: true, Servers: true, Uses: 3, Description: "rack 7",
			Ends: time.Now().Add(time.Hour).UTC().Truncate(time.Second), groups: ServersGroup,
		},
	} {
		s := want.NewSecret()
		got, ok := ReadBootstrapToken(s)
		if want.Used = []string{}; !ok || !reflect.DeepEqual(got, want) || s.Namespace != "kube-system" {
			t.Errorf("got %+v, %t of %s; want %+v", got, ok, s.Namespace, want)
		}
	}
}

func TestTokenLetsInNoMoreMachinesThanItMay(t *testing.T) {
	counted := BootstrapToken{ID: "abcdef", Secret: "0123456789abcdef", Authenticates: true, Uses: 2}
	s := counted.NewSecret()
	for _, c := range []struct {
		pin, want string // new: it is counted; known: it was
	}{{"one", "new"}, {"one", "known"}, {"two", "new"}, {"three", "used up"}, {"one", "known"}} {
		next, err := UseBootstrapToken(s, c.pin)
		got := "known"
		switch {
		case errors.Is(err, ErrUsedUp):
			got = "used up"
		case err != nil:
			got = err.Error()
		case next != nil:
			got, s = "new", next
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.pin, got, c.want)
		}
	}
	if read, _ := ReadBootstrapToken(s); !slices.Equal(read.Used, []string{"one", "two"}) {
		t.Errorf("used by %v, want by one and two", read.Used)
	}
	s.Data["kemudi-uses"] = []byte("many")
	if read, _ := ReadBootstrapToken(s); !read.Ended(time.Now()) {
		t.Error("a token with a number of uses that is none is good, want it to have ended")
	}
	counted.Uses = 0
	if next, err := UseBootstrapToken(counted.NewSecret(), "one"); next != nil || err != nil {
		t.Errorf("a token for any number: got %v, %v; want nothing to be counted", next, err)
	}
}

func BenchmarkClientCertificate(b *testing.B) {
	p := newPKI(b)
	a := New(Options{ClientCA: p.CA.Pool()})
	r := request(b, "", issue(b, p.CA, pki.Subject{Name: "alice", Client: true}))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, _ := a.AuthenticateRequest(r); !ok {
			b.Fatal("refused")
		}
	}
}
