// Package quic stands in for QUIC, which CoreDNS offers DNS by besides UDP and
// TCP: it has the types that CoreDNS names, and neither listens nor dials.
// Cluster DNS speaks UDP and TCP, to pods and to the servers that it asks.
package quic

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// ErrAbsent answers whoever wants to listen or dial.
var ErrAbsent = errors.New("QUIC is not supported by this build")

// ErrServerClosed is how a listener would say that it was closed.
var ErrServerClosed = errors.New("QUIC: the listener was closed")

// Codes with which streams and connections end.
type (
	StreamErrorCode      uint64
	ApplicationErrorCode uint64
)

// Config is what a connection would be set to.
type Config struct {
	HandshakeIdleTimeout, MaxIdleTimeout      time.Duration
	MaxIncomingStreams, MaxIncomingUniStreams int64
	Allow0RTT, EnableDatagrams                bool
}

// Clone copies it.
func (c *Config) Clone() *Config {
	d := *c
	return &d
}

// Transport would carry connections over Conn.
type Transport struct{ Conn net.PacketConn }

// Dial fails.
func (*Transport) Dial(context.Context, net.Addr, *tls.Config, *Config) (*Conn, error) {
	return nil, ErrAbsent
}

// ListenEarly fails.
func (*Transport) ListenEarly(*tls.Config, *Config) (*EarlyListener, error) { return nil, ErrAbsent }

// Close does nothing; Conn is its owner's to close.
func (*Transport) Close() error { return nil }

// Listen fails.
func Listen(net.PacketConn, *tls.Config, *Config) (*Listener, error) { return nil, ErrAbsent }

// Listener would accept connections. There is never one.
type Listener struct{}

// EarlyListener would accept them before they are secured.
type EarlyListener = Listener

func (*Listener) Accept(context.Context) (*Conn, error) { return nil, ErrServerClosed }
func (*Listener) Addr() net.Addr                        { return nil }
func (*Listener) Close() error                          { return nil }

// Conn would be a connection. There is never one.
type Conn struct{}

// ConnectionState is what is known of its security.
type ConnectionState struct{ TLS tls.ConnectionState }

func (*Conn) AcceptStream(context.Context) (*Stream, error)     { return nil, ErrAbsent }
func (*Conn) OpenStreamSync(context.Context) (*Stream, error)   { return nil, ErrAbsent }
func (*Conn) CloseWithError(ApplicationErrorCode, string) error { return nil }
func (*Conn) ConnectionState() ConnectionState                  { return ConnectionState{} }
func (*Conn) Context() context.Context                          { return nil }
func (*Conn) LocalAddr() net.Addr                               { return nil }
func (*Conn) RemoteAddr() net.Addr                              { return nil }

// Stream would be one of its streams. There is never one.
type Stream struct{}

func (*Stream) Read([]byte) (int, error)         { return 0, ErrAbsent }
func (*Stream) Write([]byte) (int, error)        { return 0, ErrAbsent }
func (*Stream) Close() error                     { return nil }
func (*Stream) CancelRead(StreamErrorCode)       {}
func (*Stream) CancelWrite(StreamErrorCode)      {}
func (*Stream) Context() context.Context         { return nil }
func (*Stream) SetDeadline(time.Time) error      { return nil }
func (*Stream) SetReadDeadline(time.Time) error  { return nil }
func (*Stream) SetWriteDeadline(time.Time) error { return nil }

// Errors that CoreDNS tells apart.
type (
	StreamError      struct{}
	IdleTimeoutError struct{}
	ApplicationError struct{ ErrorCode ApplicationErrorCode }
)

func (*StreamError) Error() string      { return "QUIC: the stream was reset" }
func (*IdleTimeoutError) Error() string { return "QUIC: nothing came for a while" }
func (*ApplicationError) Error() string { return "QUIC: the peer has closed the connection" }
