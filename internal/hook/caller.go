package hook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// Config is where a webhook is: URL or Service.
type Config struct {
	URL     string // without a query
	Service *Service
	// CABundle are certificates, in PEM, by which the webhook is believed; none: whom this machine
	// believes.
	CABundle []byte
	// As is what this server shows to it; nil: nothing.
	As *Identity
}

// Service is a Service of the cluster at which a webhook is.
type Service struct {
	Namespace, Name string
	Path            string
	Port            int32 // of the Service; 0: 443
}

// Host is the name that the webhook's certificate must have.
func (s *Service) Host() string { return s.Name + "." + s.Namespace + ".svc" }

// Options of a Caller.
type Options struct {
	// Dial opens a connection to a ready endpoint of a service's port, which is never 0. Nil: services
	// cannot be called.
	Dial func(ctx context.Context, s Service) (net.Conn, error)
	// Registry takes what is counted of calls; nil: it is not shown.
	Registry prometheus.Registerer
	// Tracing makes spans of calls, of which webhooks are told; nil: there are none.
	Tracing *tracing.Provider
}

// MaxAnswer is how many bytes the answer of a webhook may have.
const MaxAnswer = 16 << 20

// Bounds of what is kept for webhooks that are called again. An unused connection is closed
// after a while: its pod may be gone by then without a word.
const (
	keptPools       = 200
	keptConnections = 8 // to each webhook
	keptFor         = 30 * time.Second
	handshake       = 10 * time.Second
)

// Caller calls webhooks. It may be used concurrently. Close it when no call is under way any
// more.
type Caller struct {
	o       Options
	metrics *metrics
	mu      struct {
		sync.Mutex
		pools map[string]*pool
		turn  uint64
	}
}

// pool is the connections to one webhook.
type pool struct {
	transport *http.Transport
	shows     http.RoundTripper // transport, with what this server shows to the webhook
	used      uint64            // the turn in which it was used last
}

// New returns a caller that has no connections yet.
func New(o Options) *Caller {
	c := &Caller{o: o, metrics: newMetrics(o.Registry)}
	c.mu.pools = map[string]*pool{}
	return c
}

// Close closes the connections that wait for calls.
func (c *Caller) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, p := range c.mu.pools {
		p.transport.CloseIdleConnections()
		delete(c.mu.pools, key)
	}
}

// target is where a call goes, without the query. The path is in its shortest form, as people find it who write
// https://host//check for a server that would lead them elsewhere.
func (c Config) target() (*url.URL, error) {
	if s := c.Service; s != nil {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(s.Host(), strconv.Itoa(int(s.port()))), Path: path.Join("/", s.Path)}, nil
	}
	if c.URL == "" {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, fmt.Errorf("Unparsable URL: %w", err) //nolint:staticcheck // upstream's text
	}
	u.Path, u.RawPath = path.Join("/", u.Path), ""
	return u, nil
}

func (s *Service) port() int32 {
	if s.Port == 0 {
		return 443
	}
	return s.Port
}

// pool returns the connections to a webhook.
func (c *Caller) pool(cfg Config, to *url.URL) (http.RoundTripper, error) {
	key := to.Scheme + "://" + to.Host + "\x00" + string(cfg.CABundle)
	if cfg.Service != nil {
		key = "service " + key
	}
	if cfg.As != nil {
		key = "as " + cfg.As.name + "\x00" + key
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.turn++
	if p := c.mu.pools[key]; p != nil {
		p.used = c.mu.turn
		return p.shows, nil
	}
	t, err := c.transport(cfg)
	if err != nil {
		return nil, err
	}
	p := &pool{transport: t, shows: t, used: c.mu.turn}
	if cfg.As != nil {
		if p.shows, err = cfg.As.shownBy(t); err != nil {
			return nil, err
		}
	}
	p.shows = c.o.Tracing.Client(p.shows)
	if len(c.mu.pools) >= keptPools {
		c.dropLocked()
	}
	c.mu.pools[key] = p
	return p.shows, nil
}

// dropLocked forgets the webhook that was called the longest time ago (K3). A call to it
// that is under way goes on.
func (c *Caller) dropLocked() {
	oldest := ""
	for key, p := range c.mu.pools {
		if oldest == "" || p.used < c.mu.pools[oldest].used {
			oldest = key
		}
	}
	c.mu.pools[oldest].transport.CloseIdleConnections()
	delete(c.mu.pools, oldest)
}

// transport makes connections to a webhook. It speaks HTTP/1.1: calls of one HTTP/2 connection would
// all go to one endpoint.
func (c *Caller) transport(cfg Config) (*http.Transport, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if len(cfg.CABundle) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(cfg.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: secure, TLSHandshakeTimeout: handshake,
		MaxIdleConnsPerHost: keptConnections, IdleConnTimeout: keptFor, DisableCompression: true,
	}
	if s := cfg.Service; s != nil {
		to := *s
		to.Port = s.port()
		t.Proxy = nil
		secure.ServerName = s.Host() // K1
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if c.o.Dial == nil {
				return nil, fmt.Errorf("service %s/%s cannot be reached: this server has no connection to services", to.Namespace, to.Name)
			}
			return c.o.Dial(ctx, to)
		}
	}
	return t, nil
}

// send posts a document and returns the answer's code and body.
func (c *Caller) send(ctx context.Context, cfg Config, doc []byte) (answer, error) {
	to, err := cfg.target()
	if err != nil {
		return answer{}, err
	}
	t, err := c.pool(cfg, to)
	if err != nil {
		return answer{}, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		// The webhook is told how long it has, in whole seconds.
		left := (time.Until(deadline) + time.Second - 1).Truncate(time.Second)
		to.RawQuery = "timeout=" + max(left, time.Second).String()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(doc))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	req.Header.Set("User-Agent", "kube-apiserver-admission")
	client := &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		c.metrics.failed(err)
	}
	return read(resp, err)
}

// read reads an answer (K2).
func read(resp *http.Response, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read, or is not wanted
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
	switch {
	case err != nil:
		return answer{}, fmt.Errorf("read the answer: %w", err)
	case len(body) > MaxAnswer:
		return answer{}, fmt.Errorf("the answer is longer than %d bytes", MaxAnswer)
	}
	return answer{code: resp.StatusCode, contentType: resp.Header.Get("Content-Type"), retryAfter: resp.Header.Get("Retry-After"), body: body}, nil
}
