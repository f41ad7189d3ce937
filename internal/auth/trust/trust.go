package trust

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	"github.com/kemudi/kemudi/internal/auth/authn"
)

// ConfigMap is the name of the one that says it, in kube-system.
const ConfigMap = "extension-apiserver-authentication"

// Keys of the ConfigMap.
const (
	keyClients = "client-ca-file"
	keyProxies = "requestheader-client-ca-file"
	keyNames   = "requestheader-allowed-names"
	keyUser    = "requestheader-username-headers"
	keyUID     = "requestheader-uid-headers"
	keyGroup   = "requestheader-group-headers"
	keyExtra   = "requestheader-extra-headers-prefix"
)

// Trust is whom somebody believes.
type Trust struct {
	Clients []*x509.Certificate // authorities of clients
	Proxies []*x509.Certificate // authorities of front proxies; none: no proxy is believed
	Names   []string            // common names of proxies; none: any
	Headers authn.FrontProxyHeaders
}

// lists are the parts of t that are lists of words, by their keys.
func (t *Trust) lists() map[string]*[]string {
	return map[string]*[]string{keyNames: &t.Names, keyUser: &t.Headers.User, keyUID: &t.Headers.UID, keyGroup: &t.Headers.Group, keyExtra: &t.Headers.Extra}
}

// Parse reads the data of the ConfigMap.
func Parse(data map[string]string) (t Trust, err error) {
	if t.Clients, err = parseCerts(data[keyClients]); err != nil {
		return Trust{}, fmt.Errorf("%s: %w", keyClients, err)
	}
	if t.Proxies, err = parseCerts(data[keyProxies]); err != nil {
		return Trust{}, fmt.Errorf("%s: %w", keyProxies, err)
	}
	for key, list := range t.lists() {
		if data[key] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(data[key]), list); err != nil {
			return Trust{}, fmt.Errorf("%s: %w", key, err)
		}
	}
	return t, nil
}

// parseCerts reads all certificates in a text.
func parseCerts(text string) (certs []*x509.Certificate, _ error) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return certs, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
}

// Data is what the ConfigMap says. Of proxies it says nothing if none is believed.
func (t Trust) Data() (map[string]string, error) {
	data := map[string]string{}
	if len(t.Clients) > 0 {
		data[keyClients] = certsText(t.Clients)
	}
	if len(t.Proxies) == 0 {
		return data, nil
	}
	data[keyProxies] = certsText(t.Proxies)
	for key, list := range t.lists() {
		text, err := json.Marshal(append([]string{}, *list...)) // [], not null
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", key, err)
		}
		data[key] = string(text)
	}
	return data, nil
}

func certsText(certs []*x509.Certificate) string {
	var text bytes.Buffer
	for _, c := range certs {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes everything
	}
	return text.String()
}

// With is what t and other say together, without the certificates that have ended.
func (t Trust) With(other Trust, now time.Time) Trust {
	both := Trust{Clients: certs(now, t.Clients, other.Clients), Proxies: certs(now, t.Proxies, other.Proxies)}
	mine, others := t.lists(), other.lists()
	for key, list := range both.lists() {
		for _, word := range slices.Concat(*mine[key], *others[key]) {
			if !slices.Contains(*list, word) {
				*list = append(*list, word)
			}
		}
	}
	return both
}

// certs are those of the lists that have not ended, each once.
func certs(now time.Time, lists ...[]*x509.Certificate) (all []*x509.Certificate) {
	for _, c := range slices.Concat(lists...) {
		if now.Before(c.NotAfter) && !slices.ContainsFunc(all, c.Equal) {
			all = append(all, c)
		}
	}
	return all
}

// Pool is a pool that trusts the certificates alone; nil if there are none.
func Pool(certs []*x509.Certificate) *x509.CertPool {
	if len(certs) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// FrontProxy is who may say for whom a request is; nil: nobody.
func (t Trust) FrontProxy() *authn.FrontProxy {
	if len(t.Proxies) == 0 {
		return nil
	}
	return &authn.FrontProxy{CA: Pool(t.Proxies), Names: t.Names, Headers: t.Headers}
}
