package relay

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"
)

// Attachment is a client's connection to the streams of a running container. It
// is passed on to the runtime's, rather than through, as the runtime calls it a
// success when the container's streams had ended before: who ran a command that
// takes a moment would see nothing of what it wrote. Such a client gets it from
// the log.
type Attachment struct {
	Where     *url.URL      // of the runtime's stream
	Idle      time.Duration // how long it may be silent
	StdinOnce bool          // the container's input ends with the first client's
	// Running says whether the container still is, Ended waits a while for its end,
	// and says whether it has come: a runtime may have let go of what it still calls
	// running. Replay writes what has not been read of the output of one that has ended right after its start, and whether the
	// client has all of it now; out and errOut are nil where they are not wanted.
	Running func(context.Context) bool
	Ended   func(context.Context) bool
	Replay  func(ctx context.Context, out, errOut io.Writer) (all bool, err error)
}

// Serve answers a request to attach to the streams that o asks for.
func (t *Attachment) Serve(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
	w, r, end := watched(w, r)
	defer end()
	a := &attaching{t, o}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		five{o, t.Idle, "error attaching to container: %v"}.serve(w, r, func(ctx context.Context, in io.Reader, out, errOut io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
			return a.AttachContainer(ctx, "", "", "", in, out, errOut, o.TTY, resize)
		})
		return
	}
	remotecommand.ServeAttach(w, r, a, "", "", "", o, t.Idle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// attaching is an attachment to those of the streams that have been asked for.
type attaching struct {
	*Attachment
	asked *remotecommand.Options
}

var _ remotecommand.Attacher = (*attaching)(nil)

// AttachContainer joins the client's streams with the runtime's until the
// container's end, or the client's.
func (t *attaching) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shown := &counter{broken: cancel}
	input := &watchedInput{r: in}
	o := streams{asked: t.asked, in: input, out: shown.to(out), errOut: shown.to(errOut), resize: resize}.options(ctx)
	err := stream(ctx, t.Where, o)
	if shown.any.Load() || ctx.Err() != nil || o.Stdout == nil && o.Stderr == nil {
		return err
	}
	// Where input does not end with its first client, an attachment ends with it.
	if left := input.ended.Load() && (!t.StdinOnce || tty); left && t.Running(ctx) || err != nil && !t.Ended(ctx) {
		return err
	}
	seen, missed := t.Replay(ctx, o.Stdout, o.Stderr)
	if seen && missed == nil {
		return nil // whatever the runtime says: kubectl would show the log once more
	}
	return errors.Join(err, missed)
}
