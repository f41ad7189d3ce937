// Package http3 stands in for HTTP over QUIC, by which CoreDNS would offer DNS.
package http3

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"github.com/quic-go/quic-go"
)

// ErrCodeExcessiveLoad is how a server refuses a connection too many.
const ErrCodeExcessiveLoad quic.ApplicationErrorCode = 0x107

// RemoteAddrContextKey is where a request's context would have its client's address.
var RemoteAddrContextKey = new(struct{ _ byte })

// QUICListener would accept connections.
type QUICListener interface {
	Accept(context.Context) (*quic.Conn, error)
	Addr() net.Addr
	Close() error
}

// Server would serve requests.
type Server struct {
	Handler         http.Handler
	TLSConfig       *tls.Config
	QUICConfig      *quic.Config
	EnableDatagrams bool
	MaxHeaderBytes  int
}

// Serve fails.
func (*Server) Serve(net.PacketConn) error { return quic.ErrAbsent }

// ServeListener fails.
func (*Server) ServeListener(QUICListener) error { return quic.ErrAbsent }

// Shutdown has nothing to end.
func (*Server) Shutdown(context.Context) error { return nil }

// ConfigureTLSConfig returns c.
func ConfigureTLSConfig(c *tls.Config) *tls.Config { return c }
