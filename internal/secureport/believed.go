package secureport

import (
	"crypto/x509"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/delegated"
	"github.com/kemudi/kemudi/internal/auth/trust"
	"github.com/kemudi/kemudi/internal/client"
)

// edition tells whom a port believes at one time from whom it does at another.
type edition struct {
	clients, proxies *x509.CertPool // of the files
	published        string         // revision of what the API server says
}

// believed says who asks: by authorities in files that flags name or, where they name none, by
// those that the API server says, and by tokens. All of them may change meanwhile.
func (o *Options) believed(api client.Transport) (authenticator.Request, error) {
	clients, err := Certificates("--client-ca-file", o.ClientCA)
	if err != nil {
		return nil, err
	}
	proxies, err := Certificates("--requestheader-client-ca-file", o.FrontProxyCA)
	if err != nil {
		return nil, err
	}
	tokens := []authenticator.Token{delegated.NewTokens(api)}
	chain := func(published func() (t trust.Trust, revision string)) authenticator.Request {
		return authn.NewRenewed(func() any {
			_, revision := published()
			return edition{clients(), proxies(), revision}
		}, func() authn.Options {
			said, _ := published()
			known := authn.Options{Tokens: tokens, ClientCA: clients(), FrontProxy: said.FrontProxy()}
			if o.ClientCA == "" {
				known.ClientCA = trust.Pool(said.Clients)
			}
			if o.FrontProxyCA != "" {
				known.FrontProxy = &authn.FrontProxy{CA: proxies(), Names: o.FrontProxyNames, Headers: o.FrontProxyHeaders}
			}
			return known
		})
	}
	files := chain(func() (t trust.Trust, revision string) { return t, "" })
	if o.SkipLookup || o.ClientCA != "" && o.FrontProxyCA != "" {
		return files, nil
	}
	return &lookup{files: files, read: func() *trust.Published { return trust.Read(api) }, chain: chain}, nil
}

// lookup asks the API server who signs certificates, from when somebody first shows one: the account of a part
// that is asked for health alone need not be allowed to.
type lookup struct {
	files authenticator.Request // without what the API server says
	read  func() *trust.Published
	chain func(published func() (trust.Trust, string)) authenticator.Request

	begin sync.Once
	begun time.Time
	said  *trust.Published
	by    authenticator.Request
}

// lookupWithin is how long who comes first waits for the answer.
const lookupWithin = time.Second

// AuthenticateRequest says who asks.
func (l *lookup) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return l.files.AuthenticateRequest(r)
	}
	l.begin.Do(func() {
		l.said, l.begun = l.read(), time.Now()
		l.by = l.chain(l.said.Get)
	})
	if left := time.Until(l.begun.Add(lookupWithin)); left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-l.said.Known():
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	return l.by.AuthenticateRequest(r)
}
