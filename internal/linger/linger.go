// Package linger ends connections that a handler has taken over without losing what was written to them last.
//
// A socket that is closed while its peer still sends, as the pings of a client that is slow to read, is reset by the
// kernel, and what the peer has not read by then is gone: the end of a command's output, and its exit code. So what a
// handler closes is only half closed ([Writer.Finish]): nothing more is sent, what comes is thrown away, and the peer
// closes it when it has read all there is.
package linger

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Bounds of how long a peer may take to read what is left: while it sends something now and then, and in all.
const (
	silence = 30 * time.Second
	longest = 15 * time.Minute
)

// Writer stands in for the writer of an answer whose connection a handler may take over.
type Writer struct {
	http.ResponseWriter
	after func(end func()) (stop func() bool) // calls end when the request's context has ended
	gone  func()
	conn  *conn // that has been taken over; nil: none
}

// Hold returns what a handler is given in place of w. A connection that is taken over ends with ctx, whatever the
// handler does; gone, which may be nil, is called when the client has ended it.
func Hold(ctx context.Context, w http.ResponseWriter, gone func()) *Writer {
	return &Writer{ResponseWriter: w, gone: gone, after: func(end func()) func() bool { return context.AfterFunc(ctx, end) }}
}

// Unwrap returns the writer that this one stands in for.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Hijack hands over the connection.
func (w *Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, raw.Close())
	}
	w.conn = &conn{Conn: raw, gone: w.gone}
	w.conn.stop = w.after(func() { _ = raw.Close() }) // an error means that it is closed
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(early)), w.conn))
	return w.conn, bufio.NewReadWriter(r, buffered.Writer), nil
}

// Finish ends a connection that was taken over, when its handler is done with it: it returns when the peer has read
// what there is, is gone, or is too slow.
func (w *Writer) Finish() {
	if w.conn == nil {
		return
	}
	defer w.conn.stop()
	defer w.conn.Conn.Close() // what was to be said has been said
	if !w.conn.ended.Load() && closeWrite(w.conn.Conn) {
		w.conn.drain()
	}
}

// closeWrite tells the peer that nothing follows, if that can be told. TLS gives up after some seconds where there is
// no room for its last words, behind all that has not been read; below it the end can still be told.
func closeWrite(c net.Conn) bool {
	half, ok := c.(interface{ CloseWrite() error })
	told := ok && half.CloseWrite() == nil
	if secured, ok := c.(*tls.Conn); ok {
		return closeWrite(secured.NetConn()) || told
	}
	return told
}

// conn is a connection that its handler cannot close.
type conn struct {
	net.Conn
	ended atomic.Bool // it cannot be read any more
	gone  func()
	stop  func() bool
}

// Close does nothing: [Writer.Finish] ends the connection.
func (*conn) Close() error { return nil }

// Read notices the end.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.ended.CompareAndSwap(false, true) && c.gone != nil {
		c.gone()
	}
	return n, err
}

// drain throws away what comes.
func (c *conn) drain() {
	until := time.Now().Add(longest)
	buf := make([]byte, 4<<10)
	for now := time.Now(); now.Before(until); now = time.Now() {
		if c.Conn.SetReadDeadline(now.Add(silence)) != nil {
			return
		}
		if _, err := c.Conn.Read(buf); err != nil {
			return
		}
	}
}
