package https

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/kemudi/kemudi/internal/obs/tracing"
	"github.com/kemudi/kemudi/internal/resource"
)

// Options say where the API is and who asks. Servers is required.
type Options struct {
	// Servers are the URLs of the cluster's API servers: "https://10.0.0.1:6443". One of
	// them is asked, the others when it does not work. See [Transport.SetServers].
	Servers []string
	// CA are the certificates of the authority that the server's is signed by, in
	// PEM. Default: those that the machine trusts.
	CA []byte
	// CAFile holds them and is read again when it changes. Empty: they stay.
	CAFile string
	// Certificate returns the client certificate to show, and is asked for each
	// request: when it returns another one, all connections are made anew. Nil:
	// none. See [CertificateFiles].
	Certificate func() (*tls.Certificate, error)
	// Token returns the bearer token to send, and is asked for each request. Nil:
	// none. See [TokenFile].
	Token func() (string, error)
	// Plugin says who asks, in place of Certificate and Token. Nil: they do. See [FromConfig].
	Plugin *Plugin
	// ServerName is the name that the servers' certificates are made out to. Default: that in
	// their URLs.
	ServerName string
	// Agent names the client, such as "kubelet": it manages the fields that it
	// writes. Default "kemudi".
	Agent string

	// Dial opens connections. Default: TCP, within 10 s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// RequestTimeout bounds every request but watches, with what is sent again.
	// Default 65 s: a little more than the server itself takes at most.
	RequestTimeout time.Duration
	// PageSize is how many objects are asked for at a time when a cache is
	// filled. Default 2000.
	PageSize int64
	// WatchTimeout is how long a watch lasts at least before it is made anew;
	// a random part of up to the same is added. Default 5 minutes.
	WatchTimeout time.Duration
	// Backoff is the first wait after a failure; later ones grow to 150 times of
	// it. Default 100 ms.
	Backoff time.Duration

	// Trim takes off an object that a cache is about to show what nobody here has a use for.
	// Nil: caches show all of it.
	Trim func(resource.Object)

	// Memory has the last known state kept on disk. Nil: it is not.
	Memory *Memory

	// Tracing makes spans of requests, of which servers are told; nil: there are none.
	Tracing *tracing.Provider

	Logger *slog.Logger // default: nothing is logged
}

// Limits of connections.
const (
	dialTimeout      = 10 * time.Second
	keepAlive        = 30 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	pingAfter        = 30 * time.Second // of silence; a connection whose ping ...
	pingTimeout      = 15 * time.Second // ... is not answered in so long is closed
)

// most is how often the first back-off fits into the longest one.
const most = 150

func (o Options) withDefaults() Options {
	if o.Agent == "" {
		o.Agent = "kemudi"
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	setDefault(&o.RequestTimeout, 65*time.Second)
	setDefault(&o.PageSize, 2000)
	setDefault(&o.WatchTimeout, 5*time.Minute)
	setDefault(&o.Backoff, 100*time.Millisecond)
	if o.Trim == nil {
		o.Trim = func(resource.Object) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func setDefault[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// tls is how connections are secured. Certificates are asked for when a server wants one.
func (o *Options) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}
	if len(o.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("https options: CA holds no certificate in PEM")
		}
	}
	if o.Plugin != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.Plugin.certificate(), nil }
	} else if o.Certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.Certificate() }
	}
	return config, nil
}
