package trust

import (
	"crypto/x509"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/pki"
)

func authority(t *testing.T, name string) *x509.Certificate {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a.Cert
}

// names are the common names of certificates.
func names(certs []*x509.Certificate) string {
	var list []string
	for _, c := range certs {
		list = append(list, c.Subject.CommonName)
	}
	return strings.Join(list, " ")
}

func TestWhatIsSaidIsReadAgain(t *testing.T) {
	said := Trust{
		Clients: []*x509.Certificate{authority(t, "a"), authority(t, "b")}, Proxies: []*x509.Certificate{authority(t, "p")},
		Headers: authn.FrontProxyHeaders{}.Canonical(),
	}
	data, err := said.Data()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"requestheader-allowed-names": `[]`, "requestheader-username-headers": `["X-Remote-User"]`, "requestheader-uid-headers": `["X-Remote-Uid"]`,
		"requestheader-group-headers": `["X-Remote-Group"]`, "requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if data[key] != want {
			t.Errorf("%s: got %s, want %s", key, data[key], want)
		}
	}
	again, err := Parse(data)
	if err != nil || names(again.Clients) != "a b" || names(again.Proxies) != "p" || len(again.Names) > 0 || !slices.Equal(again.Headers.Group, said.Headers.Group) {
		t.Errorf("got %+v, %v", again, err)
	}
	if p := again.FrontProxy(); p == nil || p.CA == nil {
		t.Errorf("got %+v, want a proxy", p)
	}
	said.Proxies = nil
	data, err = said.Data()
	if keys := slices.Collect(maps.Keys(data)); err != nil || !slices.Equal(keys, []string{"client-ca-file"}) {
		t.Errorf("without proxies: got %v, %v, want the authorities of clients alone", keys, err)
	}
	if said.FrontProxy() != nil || Pool(nil) != nil {
		t.Error("nobody named is nobody believed")
	}
	for key, text := range map[string]string{"requestheader-allowed-names": "a,b", "client-ca-file": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if _, err := Parse(map[string]string{key: text}); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
			t.Errorf("%s: got %v, want an error that names it", key, err)
		}
	}
}

func TestServersAddToWhatOthersSaid(t *testing.T) {
	a, b, p := authority(t, "a"), authority(t, "b"), authority(t, "p")
	one := Trust{Clients: []*x509.Certificate{a}, Proxies: []*x509.Certificate{p}, Names: []string{"x"}, Headers: authn.FrontProxyHeaders{User: []string{"U"}}}
	two := Trust{Clients: []*x509.Certificate{a, b}, Proxies: []*x509.Certificate{p}, Names: []string{"y", "x"}, Headers: authn.FrontProxyHeaders{User: []string{"V"}}}
	both := one.With(two, time.Now())
	if names(both.Clients) != "a b" || names(both.Proxies) != "p" || !slices.Equal(both.Names, []string{"x", "y"}) || !slices.Equal(both.Headers.User, []string{"U", "V"}) {
		t.Errorf("got %+v", both)
	}
	if later := one.With(two, a.NotAfter.Add(time.Second)); names(later.Clients) != "" && names(later.Clients) != "b" {
		t.Errorf("got %s, want none that has ended", names(later.Clients))
	}
}
