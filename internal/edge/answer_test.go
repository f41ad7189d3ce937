package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kemudi/kemudi/internal/task"
)

// answering serves by HTTP/2 over a pipe what a handler does with an answer, and gives a test the answer's beginning.
func answering(t *testing.T, do func(a *answer), test func(*http.Response)) {
	synctest.Test(t, func(t *testing.T) {
		port := newPipes()
		e := New(Options{Control: newPipes()})
		s := e.ports.server()
		s.TLSConfig = e.tlsConfig()
		s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a := newAnswer(w, r)
			defer e.finish(a)
			do(a)
		})
		g := task.NewGroup(t.Context())
		g.Go("serve", func(ctx context.Context) error { return e.ports.serve(ctx, s, port) })
		tr := &http.Transport{
			ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			DialContext: func(context.Context, string, string) (net.Conn, error) { return port.dial(t), nil },
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.com/", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := tr.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		if res.ProtoMajor != 2 {
			t.Fatalf("got %s, want HTTP/2", res.Proto)
		}
		test(res)
		if err := res.Body.Close(); err != nil {
			t.Error(err)
		}
		tr.CloseIdleConnections()
		g.Cancel(context.Canceled)
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

func TestStreamsMayBeSilentForLongerThanAClientMay(t *testing.T) {
	answering(t, func(a *answer) {
		for _, text := range []string{"one", "two", "three"} {
			_, err := io.WriteString(a, text)
			if err := errors.Join(err, a.FlushError()); err != nil {
				t.Errorf("%s: %v", text, err)
			}
			time.Sleep(2 * sendTimeout)
		}
	}, func(res *http.Response) {
		if text, err := io.ReadAll(res.Body); err != nil || string(text) != "onetwothree" {
			t.Errorf("got %q, %v, want all three words", text, err)
		}
	})
}

// TestStreamThatItsClientDoesNotReadEnds (E5): it gives no more room, but goes on with the connection.
func TestStreamThatItsClientDoesNotReadEnds(t *testing.T) {
	var took time.Duration
	answering(t, func(a *answer) {
		began, piece := time.Now(), make([]byte, 64<<10)
		for {
			if _, err := a.Write(piece); err != nil {
				took = time.Since(began)
				return
			}
		}
	}, func(res *http.Response) {
		time.Sleep(2 * sendTimeout)
		synctest.Wait()
		if took < sendTimeout || took > sendTimeout+time.Second {
			t.Errorf("it was waited for during %s, want %s", took, sendTimeout)
		}
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("the client has read to an end, want none")
		}
	})
}

// TestLastWordsThatAClientDoesNotTakeEnd (E5): they are sent after the answer is over, when nobody watches it any more.
func TestLastWordsThatAClientDoesNotTakeEnd(t *testing.T) {
	answering(t, func(a *answer) {
		piece := make([]byte, 64<<10)
		for range (4 << 20) / len(piece) { // all that the client takes of a stream that it does not read
			if _, err := a.Write(piece); err != nil {
				t.Error(err)
			}
		}
		if _, err := io.WriteString(a, "the end"); err != nil {
			t.Error(err)
		}
	}, func(res *http.Response) {
		time.Sleep(sendTimeout + time.Second)
		synctest.Wait()
		if _, err := io.Copy(io.Discard, res.Body); err == nil {
			t.Error("the client has read to an end, want none")
		}
	})
}
