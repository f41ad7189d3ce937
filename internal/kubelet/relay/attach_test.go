package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	restclient "k8s.io/client-go/rest"
	remoteclient "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// served is a runtime's side of an attachment or a command.
type served func(ctx context.Context, in io.Reader, out, errOut io.WriteCloser, resize <-chan remotecommand.TerminalSize) error

func (s served) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	return s(ctx, in, out, errOut, resize)
}

// attached is a server whose clients are attached to a container with these streams.
func attached(t *testing.T, tty bool, s served, edit func(*Attachment)) *url.URL {
	t.Helper()
	return attachedTo(t, &remotecommand.Options{Stdin: true, Stdout: true, Stderr: !tty, TTY: tty}, s, edit)
}

func attachedTo(t *testing.T, o *remotecommand.Options, s served, edit func(*Attachment)) *url.URL {
	t.Helper()
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotecommand.ServeAttach(w, r, s, "", "", "", o, time.Hour, time.Minute, remotecommand.SupportedStreamingProtocols)
	}))
	t.Cleanup(runtime.Close)
	where, err := url.Parse(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	a := &Attachment{
		Where: where, StdinOnce: true, Running: func(context.Context) bool { return false }, Ended: func(context.Context) bool { return true },
		Replay: func(_ context.Context, out, errOut io.Writer) (bool, error) {
			fmt.Fprint(out, "from the log")
			if errOut != nil {
				fmt.Fprint(errOut, "errors from the log")
			}
			return true, nil
		},
	}
	if edit != nil {
		edit(a)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.Serve(w, r, o) }))
	t.Cleanup(agent.Close)
	where, err = url.Parse(agent.URL)
	if err != nil {
		t.Fatal(err)
	}
	return where
}

// attach is a client, with SPDY.
func attach(t *testing.T, where *url.URL, o remoteclient.StreamOptions) error {
	t.Helper()
	client, err := remoteclient.NewSPDYExecutor(&restclient.Config{}, http.MethodPost, where)
	if err != nil {
		t.Fatal(err)
	}
	return client.StreamWithContext(t.Context(), o)
}

func TestAttachmentComesTooLateAndSeesAllTheSame(t *testing.T) {
	t.Parallel()
	const want, wantErr = "from the log", "errors from the log"
	for _, tc := range []struct {
		name    string
		streams served
		edit    func(*Attachment)
		out     string
		errOut  string
		fails   bool
	}{
		{name: "the streams had ended", streams: func(context.Context, io.Reader, io.WriteCloser, io.WriteCloser, <-chan remotecommand.TerminalSize) error {
			return nil
		}, out: want, errOut: wantErr},
		{name: "the runtime has lost the container", streams: func(context.Context, io.Reader, io.WriteCloser, io.WriteCloser, <-chan remotecommand.TerminalSize) error {
			return errors.New("no task")
		}, out: want, errOut: wantErr},
		{name: "the runtime has lost the container, and its output has been read", streams: func(context.Context, io.Reader, io.WriteCloser, io.WriteCloser, <-chan remotecommand.TerminalSize) error {
			return errors.New("no task")
		}, edit: func(a *Attachment) {
			a.Replay = func(context.Context, io.Writer, io.Writer) (bool, error) { return true, nil }
		}},
		{name: "the runtime has lost one that ended long ago", streams: func(context.Context, io.Reader, io.WriteCloser, io.WriteCloser, <-chan remotecommand.TerminalSize) error {
			return errors.New("no task")
		}, edit: func(a *Attachment) {
			a.Replay = func(context.Context, io.Writer, io.Writer) (bool, error) { return false, nil }
		}, fails: true},
		{name: "the runtime refuses one that runs", streams: func(context.Context, io.Reader, io.WriteCloser, io.WriteCloser, <-chan remotecommand.TerminalSize) error {
			return errors.New("no")
		}, edit: func(a *Attachment) { a.Ended = func(context.Context) bool { return false } }, fails: true},
		{name: "there was more to come", streams: func(_ context.Context, _ io.Reader, out, _ io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
			fmt.Fprint(out, "live")
			return nil
		}, out: "live"},
		{name: "input ends an attachment to one that runs on", streams: func(_ context.Context, in io.Reader, _, _ io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
			_, err := io.Copy(io.Discard, in)
			return err
		}, edit: func(a *Attachment) {
			a.StdinOnce, a.Running = false, func(context.Context) bool { return true }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out, errOut bytes.Buffer
			err := attach(t, attached(t, false, tc.streams, tc.edit), remoteclient.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut})
			if (err != nil) != tc.fails || out.String() != tc.out || errOut.String() != tc.errOut {
				t.Errorf("got %q, %q and %v, want %q, %q and failure %v", out.String(), errOut.String(), err, tc.out, tc.errOut, tc.fails)
			}
		})
	}
}

func TestAttachmentLosesNothingOfALotBothWays(t *testing.T) {
	t.Parallel()
	const size = 32 << 20
	where := attached(t, false, func(_ context.Context, in io.Reader, out, errOut io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
		n, err := io.Copy(io.MultiWriter(out, errOut), in)
		if n != size {
			return fmt.Errorf("input: got %d bytes, want %d", n, size)
		}
		return err
	}, nil)
	out, errOut := &tally{}, &tally{}
	err := attach(t, where, remoteclient.StreamOptions{Stdin: io.LimitReader(zeros{}, size), Stdout: out, Stderr: errOut})
	if err != nil || out.n != size || errOut.n != size {
		t.Errorf("got %d and %d bytes, %v; want %d each", out.n, errOut.n, err, size)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type tally struct{ n int64 }

func (m *tally) Write(p []byte) (int, error) {
	m.n += int64(len(p))
	return len(p), nil
}

type oneSize chan remoteclient.TerminalSize

func (s oneSize) Next() *remoteclient.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestAttachmentPassesTheSizeOfATerminalOn(t *testing.T) {
	t.Parallel()
	where := attached(t, true, func(_ context.Context, _ io.Reader, out, _ io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
		size := <-resize
		_, err := fmt.Fprintf(out, "%dx%d", size.Width, size.Height)
		return err
	}, nil)
	queue := make(oneSize, 1)
	queue <- remoteclient.TerminalSize{Width: 80, Height: 24}
	close(queue)
	var out bytes.Buffer
	if err := attach(t, where, remoteclient.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: queue}); err != nil || out.String() != "80x24" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestAttachmentEndsWhenItsClientIsGone(t *testing.T) {
	t.Parallel()
	begun, ended := make(chan struct{}), make(chan struct{})
	where := attached(t, false, func(_ context.Context, in io.Reader, _, _ io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
		close(begun)
		defer close(ended)
		_, err := io.Copy(io.Discard, in) // ends with the connection: the client's input does not
		return err
	}, nil)
	client, err := remoteclient.NewSPDYExecutor(&restclient.Config{}, http.MethodPost, where)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	input, hold := io.Pipe()
	defer hold.Close()
	done := make(chan error)
	go func() {
		done <- client.StreamWithContext(ctx, remoteclient.StreamOptions{Stdin: input, Stdout: io.Discard, Stderr: io.Discard})
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("client: got %v", err)
	}
	<-ended
}

func TestAttachmentOverOlderWebSocketsHasTheStreamsAskedFor(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, protocol string
		asked          remotecommand.Options
		want           string // messages, without the empty one that comes first
	}{
		{"output alone", "v4.channel.k8s.io", remotecommand.Options{Stdout: true}, "\x01live"},
		{"errors alone", "v4.channel.k8s.io", remotecommand.Options{Stderr: true}, "\x02wrong"},
		{"both", "channel.k8s.io", remotecommand.Options{Stdout: true, Stderr: true}, "\x01live\x02wrong"},
		{"a terminal", "v4.channel.k8s.io", remotecommand.Options{Stdin: true, Stdout: true, TTY: true}, "\x01live"},
		{"in base64", "v4.base64.channel.k8s.io", remotecommand.Options{Stdin: true, Stdout: true}, "1bGl2ZQ=="},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			where := attachedTo(t, &tc.asked, func(_ context.Context, _ io.Reader, out, errOut io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
				if out != nil {
					fmt.Fprint(out, "live")
				}
				if errOut != nil {
					fmt.Fprint(errOut, "wrong")
				}
				return nil
			}, nil)
			where.Scheme = "ws"
			conn, _, err := (&websocket.Dialer{Subprotocols: []string{tc.protocol}}).DialContext(t.Context(), where.String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			got := map[byte]string{}
			for {
				_, data, err := conn.ReadMessage()
				if err != nil {
					break // the server has said all
				}
				if len(data) > 1 {
					got[data[0]] += string(data)
				}
			}
			if all := got[1] + got[2] + got['1']; all != tc.want {
				t.Errorf("got %q, want %q; status %s%s", all, tc.want, got[3], got['3'])
			}
		})
	}
}
