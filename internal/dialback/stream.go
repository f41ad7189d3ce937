package dialback

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is a connection through a tunnel, at the server's end.
type stream struct {
	ctx    context.Context // of the HTTP/2 stream; not a caller's
	cancel context.CancelCauseFunc
	to     target
	conn   net.Conn // the tunnel's

	sending   net.Conn // what is written here, the HTTP/2 client reads
	sent      chan struct{}
	receiving io.ReadCloser

	mu struct {
		sync.Mutex
		late *time.Timer // of the read deadline; nil: there was none
	}
}

var _ net.Conn = (*stream)(nil)

// newStream is a stream that has not been answered, and what the HTTP/2 client is
// to read. It outlives ctx.
func newStream(ctx context.Context, conn net.Conn, to string) (*stream, io.ReadCloser) {
	s := &stream{to: target(to), conn: conn, sent: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	var far net.Conn
	s.sending, far = net.Pipe()
	return s, &body{Conn: far, ctx: s.ctx, sent: s.sent}
}

// body is what the HTTP/2 client reads of what is written to a stream. The client
// asks for more only when it has sent what it had before.
type body struct {
	net.Conn
	ctx  context.Context // of the stream
	once sync.Once
	sent chan struct{} // closed when the client has sent all there is, or gives up
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	if err != nil {
		b.once.Do(func() { close(b.sent) })
	}
	if cause := context.Cause(b.ctx); cause != nil {
		return 0, cause // the stream is broken off, and has not ended
	}
	return n, err
}

// Close is called by the client when it gives up.
func (b *body) Close() error {
	b.once.Do(func() { close(b.sent) })
	return b.Conn.Close()
}

// Read reads what the target has sent.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.receiving.Read(p)
	if err != nil {
		err = s.why(err)
	}
	return n, err
}

// Write sends to the target, and waits while that does not read.
func (s *stream) Write(p []byte) (int, error) {
	n, err := s.sending.Write(p)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = s.why(err)
	}
	return n, err
}

// why is the reason for an error, if the stream was ended for one.
func (s *stream) why(err error) error {
	if cause := context.Cause(s.ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.ErrClosedPipe) {
		return net.ErrClosed
	}
	return err
}

// CloseWrite tells the target that nothing follows.
func (s *stream) CloseWrite() error { return s.sending.Close() }

// Close ends the stream when the tunnel has taken what was written, or has not for
// a few seconds.
func (s *stream) Close() error {
	_ = s.sending.Close()
	late := time.NewTimer(lastWords)
	defer late.Stop()
	select {
	case <-s.sent:
	case <-s.ctx.Done():
	case <-late.C:
	}
	s.abort(net.ErrClosed)
	return s.receiving.Close()
}

// abort ends the stream at once. The HTTP/2 client may wait for what to send: it is
// woken, and finds that the context has ended.
func (s *stream) abort(why error) {
	s.cancel(why)
	_ = s.sending.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.late != nil {
		s.mu.late.Stop()
	}
}

// SetDeadline sets both deadlines.
func (s *stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetWriteDeadline bounds the time of writes, pending ones too.
func (s *stream) SetWriteDeadline(t time.Time) error { return s.sending.SetWriteDeadline(t) }

// SetReadDeadline bounds the time for which the stream may be read. When it has
// passed the stream has ended.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.late != nil {
		s.mu.late.Stop()
		s.mu.late = nil
	}
	if t.IsZero() || s.ctx.Err() != nil {
		return nil
	}
	s.mu.late = time.AfterFunc(time.Until(t), func() { s.abort(os.ErrDeadlineExceeded) })
	return nil
}

// LocalAddr is the tunnel's address at this end.
func (s *stream) LocalAddr() net.Addr { return s.conn.LocalAddr() }

// RemoteAddr is the target, as it was asked for.
func (s *stream) RemoteAddr() net.Addr { return s.to }

// target is what a stream leads to.
type target string

// Network says that what is behind the tunnel is TCP.
func (target) Network() string  { return "tcp" }
func (t target) String() string { return string(t) }
