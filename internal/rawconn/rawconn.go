package rawconn

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
	"time"
)

// PathPrefix is of paths that are asked for in no other way. Requests for them go on for as long as
// their connections do.
const PathPrefix = "/kemudi.io/v1/connections/"

const (
	answerTime = 10 * time.Second // for the answer to be here
	maxRefusal = 1 << 10          // bounds what is read of another answer
)

// Caller asks servers for connections.
type Caller struct {
	CA          *x509.CertPool // that servers prove themselves by
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	Dial        func(ctx context.Context, network, address string) (net.Conn, error) // nil: net.Dialer's
}

// Refusal is an answer that makes no connection of a request.
type Refusal struct {
	Code         int
	Status, Text string
}

// Error says what the server has said.
func (r *Refusal) Error() string { return r.Status + ": " + r.Text }

// Call sends a request whose header asks for a protocol (Upgrade), and returns the connection that it
// is made of, and the header of the answer, which there may be without a connection, too. If the
// server does not do that, the error is a [Refusal]. ctx bounds the time until the answer is here.
func (c *Caller) Call(ctx context.Context, at *url.URL, header http.Header) (_ net.Conn, answer http.Header, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, answerTime, fmt.Errorf("no answer within %s", answerTime))
	defer cancel()
	host := at.Host
	if at.Port() == "" {
		host = net.JoinHostPort(at.Hostname(), "443")
	}
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	raw, err := dial(ctx, "tcp", host)
	if err != nil {
		return nil, nil, err
	}
	conn := tls.Client(raw, &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: c.CA, ServerName: at.Hostname(), NextProtos: []string{"http/1.1"}, GetClientCertificate: c.Certificate,
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
		return nil, nil, err
	}
	return ask(ctx, conn, at, header)
}

// ask sends the request over a connection and reads the answer.
func ask(ctx context.Context, conn net.Conn, at *url.URL, header http.Header) (_ net.Conn, answer http.Header, _ error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for a connection: %w", err)
	}
	req.Header = header
	req.Header.Set("Connection", "Upgrade")
	if err := req.Write(conn); err != nil {
		return nil, nil, fmt.Errorf("ask for a connection: %w", err)
	}
	read := bufio.NewReader(conn)
	res, err := http.ReadResponse(read, req)
	if err != nil {
		return nil, nil, fmt.Errorf("ask for a connection: %w", err)
	}
	if res.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(res.Header.Get("Upgrade"), header.Get("Upgrade")) {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // what there is of it
		return nil, res.Header, &Refusal{res.StatusCode, res.Status, strings.TrimSpace(string(text))}
	}
	return &ahead{conn, read}, res.Header, nil
}

// Asks reports whether a request asks for a protocol in the way that TakeOver can answer.
func Asks(r *http.Request, protocol string) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), protocol) && r.ProtoMajor == 1
}

// TakeOver makes a connection of a request, and answers that it is one of a protocol, with a header
// that says more. The error is one of the request: it is not answered.
func TakeOver(w http.ResponseWriter, protocol string, header http.Header) (net.Conn, error) {
	raw, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	var said strings.Builder
	_ = header.Write(&said) // to memory
	_, _ = io.WriteString(raw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+protocol+"\r\n"+said.String()+"\r\n")
	return &ahead{raw, rw.Reader}, nil // who has gone is found out by the first read
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
