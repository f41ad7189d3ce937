package lines

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync"
	"time"
)

var (
	// ErrUnusual says that a request is not for this package. Nothing has been done with it.
	ErrUnusual = errors.New("the request is not the plainest")
	// ErrSilent says that the time limit is over.
	ErrSilent = errors.New("the other side has not answered in time")

	errStatus = errors.New("the other side answers with a status that is none")
	errSwitch = errors.New("the other side changes to a protocol that nobody has asked for")
)

// Sender sends requests. The zero value of a field but Dial is none of it. The caller must Close it.
type Sender struct {
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Idle is for how long a connection is kept that nobody uses.
	Idle time.Duration
	// Most is how many of them are kept for an address.
	Most int
	// Header is how many bytes the header of an answer may have.
	Header int64

	buffers sync.Pool
	kept    kept
}

// Field is a header that a request has beside its own.
type Field struct{ Name, Value string }

// Send sends a request to an address, whatever its URL says, and returns the answer, whose body must be closed. Neither
// the beginning of the answer nor any further part of it may take longer than limit. The request has no header of the names of more.
func (s *Sender) Send(r *http.Request, address string, limit time.Duration, more ...Field) (*http.Response, error) {
	p, ok := s.buffers.Get().(*[]byte)
	if !ok {
		p = new([]byte)
	}
	defer s.buffers.Put(p)
	if *p, ok = write((*p)[:0], r, more); !ok {
		return nil, ErrUnusual
	}
	for {
		c, err := s.connect(r.Context(), address, limit)
		if err != nil {
			return nil, err
		}
		res, again, err := s.ask(c, r, *p, limit)
		if !again {
			return res, err
		}
	}
}

// connect returns a connection that was kept, or a new one.
func (s *Sender) connect(ctx context.Context, address string, limit time.Duration) (*conn, error) {
	for {
		c := s.kept.take(address)
		if c == nil {
			break
		}
		if c.quiet() {
			return c, nil
		}
		c.cut()
	}
	bounded, cancel := context.WithTimeoutCause(ctx, limit, ErrSilent)
	defer cancel()
	made, err := s.Dial(bounded, "tcp", address)
	if err != nil {
		if ctx.Err() == nil && bounded.Err() != nil { // L4
			err = ErrSilent
		}
		return nil, err
	}
	return newConn(made, address), nil
}

// ask sends a request over a connection and reads the beginning of the answer; again says that another connection may
// be tried (L3).
func (s *Sender) ask(c *conn, r *http.Request, request []byte, limit time.Duration) (_ *http.Response, again bool, _ error) {
	ctx := r.Context()
	c.extend(limit)
	c.left = s.Header
	stop := context.AfterFunc(ctx, c.cut) // L4
	n, err := c.Write(request)
	if err == nil {
		_, err = c.in.Peek(1)
	}
	if err != nil {
		stop()
		c.cut()
		again = c.old && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) && (n == 0 || harmless(r))
		return nil, again, because(ctx, err)
	}
	res, err := s.read(c, r)
	if err != nil {
		stop()
		c.cut()
		return nil, false, because(ctx, err)
	}
	b := &body{ReadCloser: res.Body, s: s, c: c, ctx: ctx, stop: stop, limit: limit, keep: !res.Close}
	if res.Body == http.NoBody {
		b.end(io.EOF)
		return res, false, nil
	}
	c.left = unlimited
	res.Body = b
	return res, false, nil
}

// unlimited is how many bytes the body of an answer may have.
const unlimited = 1<<63 - 1

// read reads the beginning of an answer. What only informs is told to the trace of the request.
func (s *Sender) read(c *conn, r *http.Request) (*http.Response, error) {
	for {
		res, err := http.ReadResponse(c.in, r)
		if err != nil {
			if c.left <= 0 {
				err = fmt.Errorf("the header of the answer has more than %d bytes: %w", s.Header, err)
			}
			return nil, err
		}
		switch code := res.StatusCode; {
		case code == http.StatusSwitchingProtocols:
			return nil, errSwitch
		case code < http.StatusContinue:
			return nil, errStatus
		case code >= http.StatusOK:
			return res, nil
		}
		if t := httptrace.ContextClientTrace(r.Context()); t != nil && t.Got1xxResponse != nil {
			if err := t.Got1xxResponse(res.StatusCode, textproto.MIMEHeader(res.Header)); err != nil {
				return nil, err
			}
			c.left = s.Header // who is told of it says how many there may be
		}
	}
}

// because is why a connection has failed.
func because(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSilent
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

// body is what comes after the header of an answer. It gives its connection back at its end.
type body struct {
	io.ReadCloser // of package http
	s             *Sender
	c             *conn
	ctx           context.Context // of the request
	stop          func() bool     // the watch of ctx
	limit         time.Duration
	keep          bool  // the connection may be kept
	over          error // why there is no more
}

// Read reads what is there, and waits for something until the limit is over.
func (b *body) Read(p []byte) (int, error) {
	if b.over != nil {
		return 0, b.over
	}
	b.c.extend(b.limit)
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		err = b.end(err)
	}
	return n, err
}

// Close ends the answer. Of one that was not read to its end the rest is not waited for.
func (b *body) Close() error {
	if b.over == nil {
		_ = b.end(http.ErrBodyReadAfterClose)
	}
	return nil
}

// end keeps the connection, if the answer is whole, and returns why there is no more (L2).
func (b *body) end(why error) error {
	whole := why == io.EOF
	if !whole && why != http.ErrBodyReadAfterClose {
		why = because(b.ctx, why)
	}
	b.over = why
	if b.stop() && whole && b.keep && b.c.in.Buffered() == 0 {
		b.s.keep(b.c)
	} else {
		b.c.cut()
	}
	return why
}

// conn is a connection to an address. One goroutine at a time has it; any may cut it.
type conn struct {
	net.Conn
	in      *bufio.Reader // of the conn itself
	left    int64         // how many bytes may still be read
	until   time.Time     // its deadline
	address string
	old     bool      // it has had a request before
	since   time.Time // when it was last given back
	cut     func()    // closes it
	probe   *probe
}

// inputSize is the memory of a connection that is kept.
const inputSize = 4 << 10

func newConn(made net.Conn, address string) *conn {
	c := &conn{Conn: made, address: address, cut: func() { made.Close() }, probe: newProbe(made)}
	c.in = bufio.NewReaderSize(c, inputSize)
	return c
}

// errLarge ends an answer whose header has no end.
var errLarge = errors.New("no more is read")

// Read reads no more than may be read.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errLarge
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

// extend gives the other side so much time from now on, or nearly so much: who asks for a lot of things gets one timer.
func (c *conn) extend(limit time.Duration) {
	until := time.Now().Add(limit)
	if less := until.Sub(c.until); less < 0 || less > limit/16 {
		c.until = until
		_ = c.SetDeadline(until) // of one that is closed the next use tells
	}
}

// quiet says that nothing has come since the last answer, not even the end (L2).
func (c *conn) quiet() bool { return c.probe == nil || c.probe.quiet() }
