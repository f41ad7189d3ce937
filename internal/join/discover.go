package join

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kemudi/kemudi/internal/auth/pki"
	"github.com/kemudi/kemudi/internal/task"
)

// Cluster is what a machine knows of the cluster that it belongs to.
type Cluster struct {
	Servers []string // URLs of the API, the one that was reached first
	CA      []byte   // certificates of the authority, in PEM
}

// Refusal is an error that trying again does not mend: its text says what does.
type Refusal struct{ err error }

func (r *Refusal) Error() string { return r.err.Error() }
func (r *Refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &Refusal{fmt.Errorf(format, args...)} }

// Limits of reading cluster-info.
const (
	discoverTimeout = 10 * time.Second // for one answer
	knownWithin     = 3 * time.Second  // the controller that signs may be a moment behind a new token, and a new server behind who may read
	maxInfo         = 1 << 20
	clockTolerance  = 2 * time.Minute
)

// infoPath is what everybody may read of a cluster.
const infoPath = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

// Discover asks the server for what its cluster says of itself, and believes it if
// the authority is the one that the token has the pin of or, of a token without a pin,
// if who says it knows the token. Nothing of the token is sent. What it returns has
// been read once more from a server that the authority has vouched for.
func Discover(ctx context.Context, server string, t Token) (*Cluster, error) {
	base, err := serverURL(server)
	if err != nil {
		return nil, err
	}
	until, backoff := time.Now().Add(knownWithin), task.Backoff{Initial: 50 * time.Millisecond, Max: time.Second}
	for {
		c, err := discover(ctx, base, t)
		if !errors.Is(err, errUnsigned) && !errors.Is(err, errSilent) || !time.Now().Before(until) || task.Sleep(ctx, backoff.Next()) != nil {
			return c, err
		}
	}
}

// errUnsigned says that nobody has signed with the token, or not yet.
var errUnsigned = errors.New("no such token")

// errSilent says that who answers does not show cluster-info, or not yet.
var errSilent = errors.New("says nothing of itself to machines that join")

func discover(ctx context.Context, base string, t Token) (*Cluster, error) {
	said, err := readInfo(ctx, base, &tls.Config{
		InsecureSkipVerify: true, // what is said is checked by pin or signature, and read again from who can prove to be it
	})
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", base, err)
	}
	believed, err := said.believe(base, t)
	if err != nil {
		return nil, err
	}
	proved, err := readInfo(ctx, base, &tls.Config{RootCAs: pool(believed)})
	if err != nil {
		return nil, said.explain(base, err)
	}
	servers := []string{base}
	for _, s := range proved.servers {
		if !slices.Contains(servers, s) {
			servers = append(servers, s)
		}
	}
	return &Cluster{Servers: servers, CA: proved.ca}, nil
}

// serverURL is how people name a server, as a URL: a name or an address will do.
func serverURL(server string) (string, error) {
	text := strings.TrimSuffix(strings.TrimSpace(server), "/")
	if !strings.Contains(text, "://") {
		if _, _, err := net.SplitHostPort(text); err != nil {
			text = net.JoinHostPort(strings.Trim(text, "[]"), "6443")
		}
		text = "https://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "" {
		return "", refuse("%q is not where a server is: name it as https://10.0.0.1:6443", server)
	}
	return text, nil
}

// info is cluster-info as a server said it.
type info struct {
	content    string            // what is signed
	signatures map[string]string // by the IDs of tokens
	servers    []string
	ca         []byte
	certs      []*x509.Certificate // those in ca
	clock      time.Time           // of the server; zero: it did not say
}

// readInfo reads cluster-info. No credentials are shown.
func readInfo(ctx context.Context, base string, config *tls.Config) (*info, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, discoverTimeout, errors.New("it did not answer in time"))
	defer cancel()
	config.MinVersion = tls.VersionTLS12
	transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+infoPath, http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	res, err := transport.RoundTrip(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxInfo))
	if err != nil {
		return nil, err
	}
	switch {
	case res.StatusCode == http.StatusNotFound, res.StatusCode == http.StatusForbidden, res.StatusCode == http.StatusUnauthorized:
		return nil, refuse("what answers there %w (%s): is it the API server of a cluster, is kube-public/cluster-info there, and may everybody read it (--anonymous-auth)?", errSilent, res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answered %s", res.Status)
	}
	in, err := parseInfo(body)
	if err != nil {
		return nil, refuse("what answers there is no API server of a cluster that machines can join: %w", err)
	}
	in.clock, _ = http.ParseTime(res.Header.Get("Date"))
	return in, nil
}

// signaturePrefix begins the keys of signatures; the token's ID follows.
const signaturePrefix = "jws-kubeconfig-"

func parseInfo(body []byte) (*info, error) {
	var cm corev1.ConfigMap
	if err := json.Unmarshal(body, &cm); err != nil {
		return nil, err
	}
	in := &info{content: cm.Data["kubeconfig"], signatures: map[string]string{}}
	for key, value := range cm.Data {
		if id, ok := strings.CutPrefix(key, signaturePrefix); ok {
			in.signatures[id] = value
		}
	}
	config, err := clientcmd.Load([]byte(in.content))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(config.Clusters))
	for name := range config.Clusters {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := config.Clusters[name]
		in.servers = append(in.servers, c.Server)
		if len(in.ca) == 0 {
			in.ca = c.CertificateAuthorityData
		}
	}
	if in.certs, err = parseCertificates(in.ca); err != nil {
		return nil, err
	}
	if len(in.certs) == 0 {
		return nil, errors.New("cluster-info names no authority")
	}
	return in, nil
}

func parseCertificates(text []byte) (certs []*x509.Certificate, _ error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return certs, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read a certificate: %w", err)
		}
		certs = append(certs, cert)
	}
}

func pool(certs []*x509.Certificate) *x509.CertPool {
	p := x509.NewCertPool()
	for _, c := range certs {
		p.AddCert(c)
	}
	return p
}

// believe returns the certificates of the authority that the token vouches for.
func (in *info) believe(base string, t Token) ([]*x509.Certificate, error) {
	signature, known := in.signatures[t.ID]
	signed := hmac.Equal([]byte(signature), []byte(sign(in.content, t)))
	if t.Pin == "" {
		switch {
		case !known:
			return nil, refuse("the cluster at %s knows %w %s: it has ended or was revoked, or it is another cluster's. Make another on a server of this cluster: kemudi token create", base, errUnsigned, t.ID)
		case !signed:
			return nil, refuse("the secret of token %s is not the one that the cluster at %s knows: the token is mistyped or another cluster's, or something between pretends to be the cluster. Copy it whole from what 'kemudi token create' has printed", t.ID, base)
		}
		return in.certs, nil
	}
	var pinned []*x509.Certificate
	for _, c := range in.certs {
		if pki.Pin(c) == t.Pin {
			pinned = append(pinned, c)
		}
	}
	switch {
	case len(pinned) == 0:
		return nil, refuse("the cluster at %s is not the one that token %s is for: its authority has the pin %s, the token names %s. Make a token on a server of this cluster (kemudi token create), or name a server of the token's; nothing secret was sent", base, t.ID, pki.Pin(in.certs[0]), t.Pin)
	case known && !signed:
		return nil, refuse("the secret of token %s is not the one that the cluster at %s knows: copy the token whole from what 'kemudi token create' has printed", t.ID, base)
	}
	return pinned, nil
}

// sign is the signature (JWS, HS256) of a content that is left out of it.
func sign(content string, t Token) string {
	enc := base64.RawURLEncoding
	header := enc.EncodeToString([]byte(`{"alg":"HS256","kid":"` + t.ID + `"}`))
	mac := hmac.New(sha256.New, []byte(t.Secret))
	mac.Write([]byte(header + "." + enc.EncodeToString([]byte(content))))
	return header + ".." + enc.EncodeToString(mac.Sum(nil))
}

// explain says why a server that is genuine by what it said could not prove it.
func (in *info) explain(base string, err error) error {
	var invalid x509.CertificateInvalidError
	var host x509.HostnameError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return in.wrongClock(base, err)
	case errors.As(err, &host):
		return refuse("the server at %s is of this cluster, but its certificate is not for that name: %w. Name it as it is called there, or give it this name (kemudi server --tls-san)", base, err)
	case errors.As(err, &unknown):
		return refuse("the server at %s shows a certificate that the cluster's authority has not signed: something between pretends to be it, such as a proxy that opens TLS. Name the server itself: %w", base, err)
	}
	return fmt.Errorf("reach %s: %w", base, err)
}

// wrongClock says whose clock it is that makes certificates end or not have begun.
func (in *info) wrongClock(base string, err error) error {
	now := time.Now()
	if off := now.Sub(in.clock); !in.clock.IsZero() && off.Abs() > clockTolerance {
		return refuse("the clock of this machine says %s, that of the server %s: certificates are not good at such a time. Set this machine's clock and try again: %w",
			now.UTC().Format(time.RFC3339), in.clock.UTC().Format(time.RFC3339), err)
	}
	return refuse("the certificate of the server at %s has ended or has not begun, by its own clock too: restart the server, which renews it: %w", base, err)
}
