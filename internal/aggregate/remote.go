package aggregate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apiregistration"
	"github.com/kemudi/kemudi/internal/backend"
)

// Bounds of connections to other servers. HTTP/2 carries many requests on one; what does not answer
// for as long as pinged is taken for gone, and is connected to anew.
const (
	dialTimeout   = 10 * time.Second
	keptIdle      = 90 * time.Second
	keptPerServer = 25
	pinged        = 30 * time.Second
)

// remote is another server, as an APIService describes it. What is not guarded never changes: where that
// does, there is another remote.
type remote struct {
	name      string // of the APIService
	gv        schema.GroupVersion
	port      backend.Port
	caBundle  []byte
	insecure  bool
	transport *http.Transport
	broken    error // why nobody can be believed there; nil: somebody can

	wake chan struct{} // holds a token when it is to be asked again
	end  context.CancelFunc

	state state // guarded by the aggregator's lock
}

// state is what is known of a remote.
type state struct {
	priority  apiregistration.Priority
	available bool // as the APIService says
	resources []apidiscovery.APIResourceDiscovery
	stale     bool   // resources are of before, or not known at all
	document  string // of OpenAPI 3; empty: there is none
	swagger   []byte // its part of the document of OpenAPI 2; nil: it has none
}

func (a *Aggregator) newRemote(s *apiregistrationv1.APIService) *remote {
	r := &remote{
		name: s.Name, gv: schema.GroupVersion{Group: s.Spec.Group, Version: s.Spec.Version},
		port:     backend.Port{Namespace: s.Spec.Service.Namespace, Name: s.Spec.Service.Name, Number: ptr.Deref(s.Spec.Service.Port, 443)},
		caBundle: s.Spec.CABundle, insecure: s.Spec.InsecureSkipTLSVerify,
		wake: make(chan struct{}, 1), // the token
	}
	r.state.stale = true
	r.transport, r.broken = a.newTransport(r)
	return r
}

// isOf reports whether the remote is what an APIService describes.
func (r *remote) isOf(s *apiregistrationv1.APIService) bool {
	at := backend.Port{Namespace: s.Spec.Service.Namespace, Name: s.Spec.Service.Name, Number: ptr.Deref(s.Spec.Service.Port, 443)}
	return r.port == at && r.insecure == s.Spec.InsecureSkipTLSVerify && bytes.Equal(r.caBundle, s.Spec.CABundle)
}

var errNoCertificates = errors.New("unable to load root certificates: no certificate is in caBundle")

// newTransport speaks HTTP with another server, whichever of its endpoints it is. Who is at the other end shows a
// certificate made out to the service, of an authority in caBundle or, without one, that this machine
// believes.
func (a *Aggregator) newTransport(r *remote) (*http.Transport, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: r.port.Host(), InsecureSkipVerify: r.insecure, GetClientCertificate: a.o.Certificate,
	}
	if len(r.caBundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(r.caBundle) {
			return nil, errNoCertificates
		}
	}
	return &http.Transport{
		TLSClientConfig: config, TLSHandshakeTimeout: dialTimeout, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: keptPerServer, IdleConnTimeout: keptIdle, DisableCompression: true, // what the client accepts is asked for
		HTTP2: &http.HTTP2Config{SendPingTimeout: pinged, PingTimeout: pinged / 2},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return a.o.Services.Dial(ctx, r.port)
		},
	}, nil
}

// close closes the connections that wait for requests. Those in use end with their requests.
func (r *remote) close() {
	if r.transport != nil {
		r.transport.CloseIdleConnections()
	}
}

// poke has the remote asked again, soon.
func (r *remote) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // the token is there
	}
}

// url is a path of the other server. Its host is the name that is verified; endpoints are found by
// the transport.
func (r *remote) url(path string) *url.URL {
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(r.port.Host(), strconv.Itoa(int(r.port.Number))), Path: path}
}

// root is the path of the group-version.
func (r *remote) root() string { return "/apis/" + r.gv.Group + "/" + r.gv.Version }
