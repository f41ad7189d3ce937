package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/proxy"
	translate "k8s.io/apiserver/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/kemudi/kemudi/internal/kubelet/relay"
	"github.com/kemudi/kemudi/internal/linger"
)

// flag reads a boolean of the query as upstream's agent does.
func flag(q url.Values, name string) bool { return q.Get(name) == "1" || q.Get(name) == "true" }

// streamsOf are the streams that are asked for. A terminal has no standard error of its own.
func streamsOf(q url.Values, tty bool) (*remotecommand.Options, error) {
	o := &remotecommand.Options{Stdin: flag(q, "input"), Stdout: flag(q, "output"), Stderr: flag(q, "error") && !tty, TTY: tty}
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return nil, &badRequest{"you must specify at least 1 of stdin, stdout, stderr"}
	}
	return o, nil
}

// countWebSocket counts streams that clients open in today's way.
func (s *Server) countWebSocket(r *http.Request, of string) {
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) || wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		s.requests.webSockets.WithLabelValues(of).Inc()
	}
}

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	o, err := streamsOf(q, flag(q, "tty"))
	if err != nil {
		fail(w, err)
		return
	}
	f, err := s.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	id, ok := f.running(r.PathValue("container"))
	if !ok {
		fail(w, fmt.Errorf("container not found (%q)", r.PathValue("container")))
		return
	}
	resp, err := s.runtime.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: q["command"], Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr,
	})
	where := located(w, resp.GetUrl(), err)
	if where == nil {
		return
	}
	s.countWebSocket(r, "exec")
	(&relay.Execution{Where: where, Idle: s.o.Settings.StreamIdle}).Serve(w, r, o)
}

func (s *Server) servePortForward(w http.ResponseWriter, r *http.Request) {
	ports, err := portsOf(r)
	if err != nil {
		fail(w, err)
		return
	}
	f, err := s.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	if f.Sandbox == "" {
		fail(w, fmt.Errorf("sandbox of pod %s/%s is not running", f.Pod.Namespace, f.Pod.Name))
		return
	}
	resp, err := s.runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: f.Sandbox, Port: ports})
	where := located(w, resp.GetUrl(), err)
	if where == nil {
		return
	}
	s.countWebSocket(r, "portforward")
	held := linger.Hold(r.Context(), w, nil)
	defer held.Finish()
	var through http.Handler = proxy.NewUpgradeAwareHandler(where, nil, false, true, proxyErrors{})
	if wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		through = translate.NewTunnelingHandler(through)
	}
	through.ServeHTTP(held, r)
}

// portsOf are the ports that a request to forward some names. Clients of today name them stream by stream; those of
// the older WebSocket protocol do it here.
func portsOf(r *http.Request) (ports []int32, err error) {
	for _, text := range r.URL.Query()["port"] {
		for part := range strings.SplitSeq(text, ",") {
			n, err := strconv.ParseUint(part, 10, 16)
			if err != nil || n == 0 {
				return nil, &badRequest{fmt.Sprintf("invalid port %q", part)}
			}
			ports = append(ports, int32(n))
		}
	}
	if len(ports) == 0 && wsstream.IsWebSocketRequest(r) && !wsstream.IsWebSocketRequestWithTunnelingProtocol(r) {
		return nil, &badRequest{"query parameter \"port\" is required"}
	}
	return ports, nil
}

// failStream answers with an error of the container runtime, by its code.
func failStream(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch status.Code(err) {
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.ResourceExhausted:
		w.Header().Set("Retry-After", "60")
		code = http.StatusTooManyRequests
	}
	failWith(w, code, err)
}

// located is where the runtime says that it serves a stream, unless it has refused to; nil: the
// client has been told why.
func located(w http.ResponseWriter, at string, err error) *url.URL {
	if err != nil {
		failStream(w, err)
		return nil
	}
	where, err := url.Parse(at)
	if err != nil {
		fail(w, fmt.Errorf("the container runtime gave a bad stream address: %w", err))
		return nil
	}
	return where
}

type proxyErrors struct{}

func (proxyErrors) Error(w http.ResponseWriter, _ *http.Request, err error) { fail(w, err) }

// serveRun runs a command and answers with its output.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request) {
	f, err := s.find(r.Context(), r)
	if err != nil {
		fail(w, err)
		return
	}
	id, ok := f.running(r.PathValue("container"))
	if !ok {
		fail(w, fmt.Errorf("container not found (%q)", r.PathValue("container")))
		return
	}
	out, code, err := s.o.Pods.Runner.Exec(r.Context(), id, strings.Split(r.URL.Query().Get("cmd"), " "), 0)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", r.URL.Query().Get("cmd"), code, out)
	}
	if err != nil {
		fail(w, err)
		return
	}
	_, _ = w.Write([]byte(out)) // an error means that the client has gone
}
