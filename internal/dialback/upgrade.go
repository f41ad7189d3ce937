package dialback

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// caller makes connections of requests to servers.
type caller struct {
	ca          *x509.CertPool // that servers prove themselves by
	certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
}

// refusal is an answer that makes no connection of a request.
type refusal struct {
	code         int
	status, text string
}

// Error says what the server has said.
func (r *refusal) Error() string { return r.status + ": " + r.text }

// upgrade sends a request whose header asks for a protocol, and returns the connection
// that it is made of, and the server's ID. If the server does not do that, the error is a
// [refusal]. ctx bounds the time until the answer is here.
func (c *caller) upgrade(ctx context.Context, at *url.URL, header http.Header) (_ net.Conn, id string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, fmt.Errorf("no answer within %s", dialTimeout))
	defer cancel()
	host := at.Host
	if at.Port() == "" {
		host = net.JoinHostPort(at.Hostname(), "443")
	}
	raw, err := c.dial(ctx, "tcp", host)
	if err != nil {
		return nil, "", err
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: c.ca, ServerName: at.Hostname(), NextProtos: []string{"http/1.1"}, GetClientCertificate: c.certificate,
	})
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		if ended := !stop(); err == nil && !ended {
			return
		} else if ended {
			err = context.Cause(ctx)
		}
		_ = conn.Close()
	}()
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, "", err
	}
	return ask(ctx, conn, at, header)
}

// ask sends the request over a connection and reads the answer.
func ask(ctx context.Context, conn net.Conn, at *url.URL, header http.Header) (_ net.Conn, id string, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, "", fmt.Errorf("ask for a connection: %w", err)
	}
	req.Header = header
	req.Header.Set("Connection", "Upgrade")
	if err := req.Write(conn); err != nil {
		return nil, "", fmt.Errorf("ask for a connection: %w", err)
	}
	read := bufio.NewReader(conn)
	res, err := http.ReadResponse(read, req)
	if err != nil {
		return nil, "", fmt.Errorf("ask for a connection: %w", err)
	}
	id = res.Header.Get(serverHeader)
	if res.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(res.Header.Get("Upgrade"), header.Get("Upgrade")) {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what there is of it
		return nil, id, &refusal{res.StatusCode, res.Status, strings.TrimSpace(string(text))}
	}
	return &ahead{conn, read}, id, nil
}

// ahead is a connection of which some bytes may have been read already.
type ahead struct {
	net.Conn
	read *bufio.Reader
}

func (a *ahead) Read(p []byte) (int, error) { return a.read.Read(p) }

// CloseWrite tells the other end that nothing follows.
func (a *ahead) CloseWrite() error {
	half, ok := a.Conn.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("end what is sent to %s: %w", a.RemoteAddr(), http.ErrNotSupported)
	}
	return half.CloseWrite()
}

// takeOver makes a connection of a request, and answers that it is one of a protocol. The
// error is one of the request: it is not answered.
func takeOver(w http.ResponseWriter, protocol, id string) (net.Conn, error) {
	raw, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	conn := &ahead{raw, rw.Reader}
	_, _ = io.WriteString(raw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n"+serverHeader+": "+id+"\r\n\r\n")
	return conn, nil // who has gone is found out by the first read
}
