package relay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Execution is a client's connection to a command. It is passed on to the runtime's, rather than through: of a client
// that is slow to read, the runtime would lose what it has not read when the command ends. On a terminal, the runtime
// ends the command's output together with the input: who runs one with nothing to read
// would lose what it writes. So the input ends here, and the runtime sees it go
// on until the command has ended or the client is gone.
type Execution struct {
	Where *url.URL      // of the runtime's stream
	Idle  time.Duration // how long it may be silent
}

// Serve answers a request to run a command with the streams that o asks for.
func (e *Execution) Serve(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
	w, r, end := watched(w, r)
	defer end()
	x := &executing{e, o}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		five{o, e.Idle, "error executing command in container: %v"}.serve(w, r, func(ctx context.Context, in io.Reader, out, errOut io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
			return x.ExecInContainer(ctx, "", "", "", nil, in, out, errOut, o.TTY, resize, 0)
		})
		return
	}
	remotecommand.ServeExec(w, r, x, "", "", "", nil, o, e.Idle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// executing is an execution with those of the streams that have been asked for.
type executing struct {
	*Execution
	asked *remotecommand.Options
}

var _ remotecommand.Executor = (*executing)(nil)

// ExecInContainer joins the client's streams with the runtime's until the
// command's end, or the client's.
func (e *executing) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shown := &counter{broken: cancel}
	if e.asked.TTY {
		in = &endless{r: in, done: ctx.Done()}
	}
	o := streams{asked: e.asked, in: in, out: shown.to(out), errOut: shown.to(errOut), resize: resize}.options(ctx)
	err := stream(ctx, e.Where, o)
	if err == nil {
		return nil
	}
	if text := strings.TrimPrefix(err.Error(), runtimeSays); text != err.Error() {
		return errors.New(text) // the same words come before it again
	}
	return err
}

// runtimeSays begins what the runtime says of a command that it could not run.
const runtimeSays = "Internal error occurred: error executing command in container: "

// endless reads what a client sends. After that comes nothing, until done is closed.
type endless struct {
	r    io.Reader
	done <-chan struct{}
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n == 0 && err != nil {
		<-e.done
		return 0, err
	}
	return n, nil
}
