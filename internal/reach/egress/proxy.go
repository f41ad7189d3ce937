package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// Proxy makes connections for who cannot make them. It may be used concurrently.
type Proxy struct {
	Metrics *Metrics // nil: nothing is counted

	network, address string // "tcp" or "unix"
	files            *files // nil: no TLS
	grpc             bool   // it is asked by gRPC, not by CONNECT
}

// files are those of TLS with the proxy.
type files struct{ ca, cert, key, host string }

// config is made of what is in the files now.
func (f *files) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.host, NextProtos: []string{"http/1.1"}}
	if f.ca != "" {
		bundle, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("caBundle: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("caBundle: there is no certificate in %s", f.ca)
		}
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("clientCert: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// answerTime is how long the proxy may take to connect and to answer.
const answerTime = 30 * time.Second

// Dial has the proxy connect to an address.
func (p *Proxy) Dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	ctx, span := tracing.Within(ctx, "Proxy via "+p.labels()[0]+" protocol over "+p.labels()[1], tracing.Text("address", address))
	defer span.End()
	began := time.Now()
	p.Metrics.begun(p)
	if p.grpc {
		conn, stage, err := p.byGRPC(ctx, address)
		if err != nil {
			p.Metrics.failed(p, stage)
			return nil, err
		}
		p.Metrics.connected(p, time.Since(began))
		return conn, nil
	}
	conn, err := p.open(ctx)
	if err != nil {
		p.Metrics.failed(p, "connect")
		return nil, fmt.Errorf("connect to the egress proxy at %s: %w", p.address, err)
	}
	through, err := p.ask(ctx, conn, address)
	if err != nil {
		p.Metrics.failed(p, "proxy")
		return nil, errors.Join(err, conn.Close())
	}
	p.Metrics.connected(p, time.Since(began))
	return through, nil
}

// open connects to the proxy.
func (p *Proxy) open(ctx context.Context) (net.Conn, error) {
	raw, err := (&net.Dialer{}).DialContext(ctx, p.network, p.address)
	if err != nil || p.files == nil {
		return raw, err
	}
	config, err := p.files.config()
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return conn, nil
}

// ask asks for an address. What the other end says at once belongs to the connection that is returned.
func (p *Proxy) ask(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // whoever waits is woken
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, fmt.Errorf("ask the egress proxy at %s for %s: %w", p.address, address, err)
	}
	from := bufio.NewReader(conn)
	res, err := http.ReadResponse(from, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("ask the egress proxy at %s for %s: %w", p.address, address, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("proxy error from %s while dialing %s, code %d: %v", p.address, address, res.StatusCode, res.Status)
	}
	if !stop() {
		return nil, fmt.Errorf("ask the egress proxy at %s for %s: %w", p.address, address, context.Cause(ctx))
	}
	return &begun{conn, from}, nil
}

// begun is a connection of which something was read already.
type begun struct {
	net.Conn
	from *bufio.Reader
}

func (c *begun) Read(p []byte) (int, error) {
	if c.from != nil && c.from.Buffered() > 0 {
		return c.from.Read(p)
	}
	c.from = nil
	return c.Conn.Read(p)
}
