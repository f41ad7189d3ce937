package relay

import (
	"bytes"
	"context"
	"encoding/json"
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

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	restclient "k8s.io/client-go/rest"
	remoteclient "k8s.io/client-go/tools/remotecommand"
	clientspdy "k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

func (s served) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return s(ctx, in, out, errOut, resize)
}

// executed is a server whose clients run a command on a terminal that does this.
func executed(t *testing.T, s served) *url.URL {
	t.Helper()
	return executedWith(t, &remotecommand.Options{Stdin: true, Stdout: true, TTY: true}, s)
}

func executedWith(t *testing.T, o *remotecommand.Options, s served) *url.URL {
	t.Helper()
	runtime := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotecommand.ServeExec(w, r, s, "", "", "", nil, o, time.Hour, time.Minute, remotecommand.SupportedStreamingProtocols)
	}))
	t.Cleanup(runtime.Close)
	where, err := url.Parse(runtime.URL)
	if err != nil {
		t.Fatal(err)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(&Execution{Where: where, Idle: StreamIdle}).Serve(w, r, o)
	}))
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

// late takes nothing before it may.
type late struct {
	may <-chan struct{}
	n   int
}

func (l *late) Write(p []byte) (int, error) {
	<-l.may
	l.n += len(p)
	return len(p), nil
}

func TestClientThatIsSlowGetsTheEndOfTheOutputAndTheExitCode(t *testing.T) {
	t.Parallel()
	const size = 512 << 10
	o := &remotecommand.Options{Stdout: true}
	finished, may := make(chan struct{}), make(chan struct{})
	where := executedWith(t, o, func(_ context.Context, _ io.Reader, out, _ io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
		if _, err := out.Write(make([]byte, size)); err != nil {
			t.Error(err)
		}
		close(finished)
		return exec.CodeExitError{Err: errors.New("exit code 5"), Code: 5}
	})
	go func() {
		<-finished
		<-time.After(200 * time.Millisecond) // for some pings: they must do no harm
		close(may)
	}()
	pinging, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{PingPeriod: 10 * time.Millisecond, Proxier: func(*http.Request) (*url.URL, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	client, err := remoteclient.NewSPDYExecutorForTransports(pinging, clientspdy.NewUpgraderForStreaming(pinging), http.MethodPost, where)
	if err != nil {
		t.Fatal(err)
	}
	out := &late{may: may}
	err = client.StreamWithContext(t.Context(), remoteclient.StreamOptions{Stdout: out})
	var exit exec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 5 || out.n != size {
		t.Errorf("got %d bytes and %v, want %d and exit code 5", out.n, err, size)
	}
}

func TestClientsOfTodaySayThatTheirInputEnds(t *testing.T) {
	t.Parallel()
	where := executedWith(t, &remotecommand.Options{Stdin: true, Stdout: true, Stderr: true}, func(_ context.Context, in io.Reader, out, errOut io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
		all, err := io.ReadAll(in)
		fmt.Fprintf(out, "%q", all)
		fmt.Fprint(errOut, "that was it")
		if err != nil {
			return err
		}
		return exec.CodeExitError{Err: errors.New("exit code 3"), Code: 3}
	})
	dialer := websocket.Dialer{Subprotocols: []string{"v5.channel.k8s.io"}}
	conn, res, err := dialer.DialContext(t.Context(), "ws"+strings.TrimPrefix(where.String(), "http"), nil)
	if err != nil {
		t.Fatalf("got %v, %v", res, err)
	}
	defer conn.Close()
	for _, message := range []string{"\x00some ", "\x00words", "\xff\x00"} {
		if err := conn.WriteMessage(websocket.BinaryMessage, []byte(message)); err != nil {
			t.Fatal(err)
		}
	}
	var got [5]string
	for {
		_, data, err := conn.ReadMessage()
		if err != nil {
			break // it has ended
		}
		got[data[0]] += string(data[1:])
	}
	var status metav1.Status
	if err := json.Unmarshal([]byte(got[3]), &status); err != nil {
		t.Fatalf("%v: %q", err, got[3])
	}
	if got[1] != `"some words"` || got[2] != "that was it" || status.Reason != "NonZeroExitCode" || status.Details.Causes[0].Message != "3" {
		t.Errorf("got %q, %q and %+v", got[1], got[2], status)
	}
}

func TestClientsOfTodayAreToldWhatTheRuntimeSays(t *testing.T) {
	t.Parallel()
	client := func(s served, size chan remoteclient.TerminalSize) (string, error) {
		executor, err := remoteclient.NewWebSocketExecutor(&restclient.Config{}, http.MethodGet, executed(t, s).String())
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		err = executor.StreamWithContext(t.Context(), remoteclient.StreamOptions{Stdin: strings.NewReader(""), Stdout: &out, Tty: true, TerminalSizeQueue: oneSize(size)})
		return out.String(), err
	}
	sizes := make(chan remoteclient.TerminalSize, 1)
	sizes <- remoteclient.TerminalSize{Width: 80, Height: 24}
	close(sizes)
	out, err := client(func(_ context.Context, _ io.Reader, out, _ io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
		fmt.Fprint(out, <-resize)
		return nil
	}, sizes)
	if err != nil || out != "{80 24}" {
		t.Errorf("sizes: got %q, %v", out, err)
	}
	_, err = client(func(context.Context, io.Reader, io.WriteCloser, io.WriteCloser, <-chan remotecommand.TerminalSize) error {
		return errors.New("no such program")
	}, sizes)
	if err == nil || err.Error() != "Internal error occurred: error executing command in container: no such program" {
		t.Errorf("got %v", err)
	}
}
