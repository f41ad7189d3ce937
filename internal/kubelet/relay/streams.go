package relay

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	restclient "k8s.io/client-go/rest"
	remoteclient "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// StreamIdle is how long a stream may be silent.
const StreamIdle = 4 * time.Hour

// streams are a client's. Over WebSocket there is each of them, whether it has
// been asked for or not.
type streams struct {
	asked       *remotecommand.Options
	in          io.Reader
	out, errOut io.Writer
	resize      <-chan remotecommand.TerminalSize
}

// options are those streams that have been asked for: the runtime takes the first
// that come to be those that it was told to expect.
func (s streams) options(ctx context.Context) remoteclient.StreamOptions {
	o := remoteclient.StreamOptions{Tty: s.asked.TTY}
	if s.asked.Stdin {
		o.Stdin = s.in
	}
	if s.asked.Stdout {
		o.Stdout = s.out
	}
	if s.asked.Stderr {
		o.Stderr = s.errOut
	}
	if s.asked.TTY {
		o.TerminalSizeQueue = sizes{s.resize, ctx.Done()}
	}
	return o
}

// stream connects streams with the runtime's until those end, or ctx does.
func stream(ctx context.Context, where *url.URL, o remoteclient.StreamOptions) error {
	direct := &restclient.Config{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}
	executor, err := remoteclient.NewSPDYExecutor(direct, http.MethodPost, where)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, o)
}

// watched returns what serves the request in place of w and r: the request's
// context ends with the client's connection, or when end is called.
func watched(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, _ *http.Request, end context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	gone := func() { cancel(errors.New("the client has gone")) }
	return &watchedWriter{ResponseWriter: w, gone: gone}, r.WithContext(ctx), cancel
}

// counter notices whether anything has been written to a client, and a client
// that takes no more.
type counter struct {
	any    atomic.Bool
	broken context.CancelCauseFunc
}

func (c *counter) to(w io.Writer) io.Writer { return counted{c, w} }

type counted struct {
	c *counter
	w io.Writer
}

func (w counted) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.c.any.Store(true)
	}
	n, err := w.w.Write(p)
	if err != nil {
		w.c.broken(fmt.Errorf("write to the client: %w", err))
	}
	return n, err
}

// watchedInput remembers that a client's input has ended.
type watchedInput struct {
	r     io.Reader
	ended atomic.Bool
}

func (w *watchedInput) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if err != nil {
		w.ended.Store(true)
	}
	return n, err
}

// sizes hands on the sizes of the client's terminal.
type sizes struct {
	from <-chan remotecommand.TerminalSize
	done <-chan struct{}
}

func (s sizes) Next() *remoteclient.TerminalSize {
	select {
	case size, ok := <-s.from:
		if !ok {
			return nil
		}
		return &remoteclient.TerminalSize{Width: size.Width, Height: size.Height}
	case <-s.done:
		return nil
	}
}

// watchedWriter tells when the connection that a handler has taken over is gone.
// The HTTP server does not: it has nothing to do with it any more.
type watchedWriter struct {
	http.ResponseWriter
	gone func()
}

func (w *watchedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early, err := buffered.Reader.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	watched := &watchedConn{Conn: conn, gone: w.gone}
	r := bufio.NewReader(io.MultiReader(bytes.NewReader(bytes.Clone(early)), watched))
	return watched, bufio.NewReadWriter(r, buffered.Writer), nil
}

type watchedConn struct {
	net.Conn
	once sync.Once
	gone func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.once.Do(c.gone)
	}
	return n, err
}
