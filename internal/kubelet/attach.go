package kubelet

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

	v1 "k8s.io/api/core/v1"
	restclient "k8s.io/client-go/rest"
	remoteclient "k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/kemudi/kemudi/internal/kubelet/cri"
	"github.com/kemudi/kemudi/internal/kubelet/logs"
)

const (
	// streamIdle is how long an attachment may be silent.
	streamIdle = 4 * time.Hour
	// attachedAtOnce is how soon after its container's start an attachment comes
	// whose client has just made the pod, and wants to see all that it writes.
	attachedAtOnce = 10 * time.Second
	// exitWait is how long a container whose streams have ended may take to end.
	exitWait = 5 * time.Second
)

// attachment is a client's connection to the streams of a running container. It
// is passed on to the runtime's, rather than through, as the runtime calls it a
// success when the container's streams had ended before: who ran a command that
// takes a moment would see nothing of what it wrote. Such a client gets it from
// the log.
type attachment struct {
	where     *url.URL // of the runtime's stream
	stdinOnce bool     // the container's input ends with the first client's
	// running says whether the container still is, replay writes what has not been
	// read of the output of one that has ended right after its start.
	running func(context.Context) bool
	replay  func(ctx context.Context, out, errOut io.Writer) error
}

var _ remotecommand.Attacher = (*attachment)(nil)

func (a *Agent) serveAttach(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f, err := a.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	name := r.PathValue("container")
	id, err := f.running(name)
	if err != nil {
		fail(w, err)
		return
	}
	c := cri.FindContainer(f.pod, name)
	if c == nil {
		c = &v1.Container{}
	}
	// The terminal is as the container was started, whatever is asked for.
	o := &remotecommand.Options{Stdin: flag(q, "input"), Stdout: flag(q, "output"), Stderr: flag(q, "error") && !c.TTY, TTY: c.TTY}
	resp, err := a.o.Runtime.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
	})
	if err != nil {
		fail(w, err)
		return
	}
	where, err := url.Parse(resp.Url)
	if err != nil {
		fail(w, fmt.Errorf("the container runtime gave a bad stream address: %w", err))
		return
	}
	began := time.Now()
	(&attachment{
		where: where, stdinOnce: c.StdinOnce,
		running: func(ctx context.Context) bool { return a.isRunning(ctx, id) },
		replay: func(ctx context.Context, out, errOut io.Writer) error {
			return a.replay(ctx, f.pod, unread{id, began, out, errOut})
		},
	}).serve(w, r, o)
}

// serve answers a request to attach.
func (t *attachment) serve(w http.ResponseWriter, r *http.Request, o *remotecommand.Options) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	watched := &watchedWriter{ResponseWriter: w, gone: func() { cancel(errors.New("the client has gone")) }}
	remotecommand.ServeAttach(watched, r.WithContext(ctx), t, "", "", "", o, streamIdle, remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// AttachContainer joins the client's streams with the runtime's until the
// container's end, or the client's.
func (t *attachment) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	executor, err := remoteclient.NewSPDYExecutor(&restclient.Config{Proxy: func(*http.Request) (*url.URL, error) { return nil, nil }}, http.MethodPost, t.where)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shown := &counter{broken: cancel}
	input := &watchedInput{r: in}
	o := remoteclient.StreamOptions{Tty: tty}
	if in != nil {
		o.Stdin = input
	}
	if out != nil {
		o.Stdout = shown.to(out)
	}
	if errOut != nil {
		o.Stderr = shown.to(errOut)
	}
	if tty {
		o.TerminalSizeQueue = sizes{resize, ctx.Done()}
	}
	err = executor.StreamWithContext(ctx, o)
	if shown.any.Load() || ctx.Err() != nil || out == nil && errOut == nil {
		return err
	}
	// Where input does not end with its first client, an attachment ends with it.
	if left := input.ended.Load() && (!t.stdinOnce || tty); (left || err != nil) && t.running(ctx) {
		return err
	}
	return errors.Join(err, t.replay(ctx, o.Stdout, o.Stderr))
}

// isRunning reports whether a container runs, as far as the runtime knows.
func (a *Agent) isRunning(ctx context.Context, id string) bool {
	resp, err := a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// unread is what a client has not seen of a container's output.
type unread struct {
	container   string
	attached    time.Time // when the client came
	out, errOut io.Writer // nil: not wanted
}

// replay writes what is unread, unless the client came to a container that had
// run for a while: such a client wants what comes.
func (a *Agent) replay(ctx context.Context, pod *v1.Pod, u unread) error {
	select { // the log is complete when the runtime says that the container has ended
	case <-a.exitOf(pod, u.container):
	case <-time.After(exitWait): // it runs on, without output
	case <-ctx.Done():
		return nil
	}
	resp, err := a.o.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: u.container})
	if err != nil || resp.GetStatus().GetLogPath() == "" || u.attached.Sub(time.Unix(0, resp.GetStatus().GetStartedAt())) > attachedAtOnce {
		return nil // there is nothing to show
	}
	a.mu.Lock()
	seen := a.mu.read[u.container]
	a.mu.Unlock()
	err = logs.Read(ctx, resp.GetStatus().GetLogPath(), logs.Options{Tail: -1, Limit: -1, Stdout: rest{&seen, u.out}, Stderr: rest{&seen, u.errOut}})
	if err != nil {
		return fmt.Errorf("show what the container wrote: %w", err)
	}
	return nil
}

// noteRead notes how much of a container's log a client has read that began at
// its beginning: kubectl run reads what there is before it attaches.
func (a *Agent) noteRead(id string, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.read[id] = max(a.mu.read[id], bytes)
}

// forgetRead forgets it when the container is gone.
func (a *Agent) forgetRead(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.mu.read, id)
}

// rest passes on to w, which may be nil, what comes after the first bytes that
// it shares with others.
type rest struct {
	skip *int64
	w    io.Writer
}

func (s rest) Write(p []byte) (int, error) {
	n := min(int64(len(p)), *s.skip)
	*s.skip -= n
	if s.w == nil || int64(len(p)) == n {
		return len(p), nil
	}
	m, err := s.w.Write(p[n:])
	return int(n) + m, err
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
