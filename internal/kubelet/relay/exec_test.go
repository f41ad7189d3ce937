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
	"testing/synctest"
	"time"

	remoteclient "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

func (s served) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return s(ctx, in, out, errOut, resize)
}

// executed is a server whose clients run a command on a terminal that does this.
func executed(t *testing.T, s served) *url.URL {
	t.Helper()
	o := &remotecommand.Options{Stdin: true, Stdout: true, TTY: true}
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotecommand.ServeExec(w, r, s, "", "", "", nil, o, time.Hour, time.Minute, remotecommand.SupportedStreamingProtocols)
	}))
	t.Cleanup(runtime.Close)
	where, err := url.Parse(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (&Execution{Where: where}).Serve(w, r, o) }))
	t.Cleanup(agent.Close)
	if where, err := url.Parse(agent.URL); err == nil {
		return where
	}
	t.Fatal(err)
	return nil
}

func TestTerminalKeepsItsInputOpenAfterTheClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done, got := make(chan struct{}), make(chan error)
		in := &endless{r: strings.NewReader("last words"), done: done}
		first := make([]byte, 100)
		if n, err := in.Read(first); err != nil || string(first[:n]) != "last words" {
			t.Fatalf("got %q, %v", first[:n], err)
		}
		go func() {
			_, err := in.Read(first)
			got <- err
		}()
		synctest.Wait()
		select {
		case err := <-got:
			t.Errorf("the end of the client's input was told: %v", err)
			return
		default:
		}
		close(done)
		if err := <-got; !errors.Is(err, io.EOF) {
			t.Errorf("at the end: got %v, want EOF", err)
		}
	})
}

func TestCommandOnATerminalEndsAsTheRuntimeSays(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		says error
		want string // the client's error
	}{
		{"well", nil, ""},
		{"with a code", exec.CodeExitError{Err: errors.New("exit code 7"), Code: 7}, "command terminated with exit code 7"},
		{"not at all", errors.New("no such program"), "Internal error occurred: error executing command in container: no such program"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			where := executed(t, func(_ context.Context, in io.Reader, out, _ io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
				word := make([]byte, 4)
				if _, err := io.ReadFull(in, word); err != nil {
					return err
				}
				size := <-resize
				fmt.Fprintf(out, "%s at %dx%d", word, size.Width, size.Height)
				return tc.says
			})
			queue := make(oneSize, 1)
			queue <- remoteclient.TerminalSize{Width: 80, Height: 24}
			close(queue)
			var out bytes.Buffer
			err := attach(t, where, remoteclient.StreamOptions{Stdin: strings.NewReader("ping"), Stdout: &out, Tty: true, TerminalSizeQueue: queue})
			if got := fmt.Sprint(err); out.String() != "ping at 80x24" || got != tc.want && (err != nil || tc.want != "") {
				t.Errorf("got %q, %s; want %q, %q", out.String(), got, "ping at 80x24", tc.want)
			}
			var exit exec.CodeExitError
			if code, is := tc.says.(exec.CodeExitError); is && (!errors.As(err, &exit) || exit.Code != code.Code) {
				t.Errorf("got %v, want exit code %d", err, code.Code)
			}
		})
	}
}
