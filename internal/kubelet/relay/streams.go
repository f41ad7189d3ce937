package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	remoteclient "k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/kemudi/kemudi/internal/linger"
)

// StreamIdle is how long a stream may be silent, unless people want something else.
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

// stream connects streams with the runtime's until those end, or ctx does. Nothing is sent to the runtime but what
// the client sends, no pings either: it closes its socket when all is written, however much of that has not been
// read, and who sends to a closed socket loses that.
func stream(ctx context.Context, where *url.URL, o remoteclient.StreamOptions) error {
	direct, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{Proxier: func(*http.Request) (*url.URL, error) { return nil, nil }})
	if err != nil {
		return err
	}
	executor, err := remoteclient.NewSPDYExecutorForTransports(direct, clientspdy.NewUpgraderForStreaming(direct), http.MethodPost, where)
	if err != nil {
		return err
	}
	return executor.StreamWithContext(ctx, o)
}

// watched returns what serves the request in place of w and r: the request's
// context ends with the client's connection, or when end is called, which waits for the client to have read all.
func watched(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, _ *http.Request, end func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	held := linger.Hold(r.Context(), w, func() { cancel(errors.New("the client has gone")) })
	return held, r.WithContext(ctx), func() {
		cancel(nil)
		held.Finish()
	}
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
