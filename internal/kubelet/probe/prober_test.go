package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kemudi/kemudi/internal/trace"
)

func hostPort(t *testing.T, address string) (string, int) {
	t.Helper()
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return host, port
}

func target(host string) Target {
	return Target{Pod: &v1.Pod{}, Container: &v1.Container{}, ContainerID: "id", PodIP: host, Timeout: 5 * time.Second}
}

// want is an expected outcome.
type want struct {
	name   string
	result Result
	text   string // is in the output
}

func check(t *testing.T, h *v1.ProbeHandler, tg Target, w want) {
	t.Helper()
	p := &Prober{Version: "1.37", Exec: func(_ context.Context, _ string, command []string, _ time.Duration) (string, int32, error) {
		switch command[0] {
		case "hang":
			return "", 0, context.DeadlineExceeded
		case "gone":
			return "", 0, errors.New("no such container")
		case "fail":
			return "broken", 1, nil
		}
		return strings.Join(command, " "), 0, nil
	}}
	got, out := p.Probe(t.Context(), h, tg)
	if got != w.result || !strings.Contains(out, w.text) {
		t.Errorf("%s: got %v %q, want %v %q", w.name, got, out, w.result, w.text)
	}
}

func TestHTTPProbeGoesByTheStatusCode(t *testing.T) {
	trace.Proves(t, "PLC-024")
	var seen *http.Request // the last that was answered; one that is given up may still come in later
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			seen = r
			_, _ = w.Write([]byte("fine"))
		case "/redirect":
			http.Redirect(w, r, "/ok?from=redirect", http.StatusFound)
		case "/away":
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	host, port := hostPort(t, plain.Listener.Addr().String())
	get := func(path string) *v1.ProbeHandler {
		return &v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(port))}}
	}
	check(t, get("/ok?a=b"), target(host), want{"ok", Success, "fine"})
	if seen.URL.RawQuery != "a=b" || seen.UserAgent() != "kube-probe/1.37" || seen.Header.Get("Accept") != "*/*" {
		t.Errorf("request: got %v %v", seen.URL, seen.Header)
	}
	check(t, get("/redirect"), target(host), want{"redirect", Success, "fine"})
	check(t, get("/away"), target(host), want{"redirect to another host", Warning, "Probe terminated redirects, Response body: "})
	check(t, get("/broken"), target(host), want{"error", Failure, "HTTP probe failed with statuscode: 500"})
	slow := target(host)
	slow.Timeout = 20 * time.Millisecond
	check(t, get("/slow"), slow, want{"timeout", Failure, "deadline exceeded"})

	custom := get("/ok")
	custom.HTTPGet.HTTPHeaders = []v1.HTTPHeader{{Name: "Host", Value: "a.example"}, {Name: "X-A", Value: "1"}, {Name: "User-Agent", Value: "me"}, {Name: "Accept", Value: ""}}
	check(t, custom, target(host), want{"headers", Success, "fine"})
	if seen.Host != "a.example" || seen.Header.Get("X-A") != "1" || seen.UserAgent() != "me" || seen.Header["Accept"] != nil {
		t.Errorf("request: got %s %v", seen.Host, seen.Header)
	}
	named := get("/ok")
	named.HTTPGet.Port = intstr.FromString("web")
	tg := target(host)
	check(t, named, tg, want{"unknown port", Unknown, `couldn't find port "web"`})
	tg.Container.Ports = []v1.ContainerPort{{Name: "web", ContainerPort: int32(port)}}
	check(t, named, tg, want{"named port", Success, "fine"})

	host, port = hostPort(t, secure.Listener.Addr().String())
	tls := get("/ok")
	tls.HTTPGet.Scheme = v1.URISchemeHTTPS
	check(t, tls, target(host), want{"any certificate", Success, "fine"})
}

func TestExecProbeGoesByTheExitCode(t *testing.T) {
	trace.Proves(t, "PLC-022")
	run := func(command ...string) *v1.ProbeHandler {
		return &v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}
	}
	tg := target("")
	tg.Container.Env = []v1.EnvVar{{Name: "A", Value: "x"}}
	check(t, run("echo", "$(A)"), tg, want{"success", Success, "echo x"})
	check(t, run("echo", "$$(A) $(B) $A"), tg, want{"no reference", Success, "echo $(A) $(B) $A"})
	check(t, run("fail"), tg, want{"failure", Failure, "broken"})
	check(t, run("hang"), tg, want{"timeout", Failure, `command timed out: "hang" timed out after 5s`})
	check(t, run("gone"), tg, want{"not possible", Unknown, "no such container"})
	check(t, &v1.ProbeHandler{}, tg, want{"nothing", Unknown, "missing probe handler"})
}

// TestCommandsOutOfTimeAreEndedByTheRuntime gives the runtime the time of the command, and itself
// more than that: who gave up together with it would take a command that hangs for a probe that could not be made.
func TestCommandsOutOfTimeAreEndedByTheRuntime(t *testing.T) {
	tg := target("")
	var given, left time.Duration
	p := &Prober{Exec: func(ctx context.Context, _ string, _ []string, timeout time.Duration) (string, int32, error) {
		deadline, _ := ctx.Deadline()
		given, left = timeout, time.Until(deadline)
		return "", 0, context.DeadlineExceeded
	}}
	trace.Proves(t, "PLC-022", "PLC-028", "PLC-077")
	r, out := p.Probe(t.Context(), &v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"hang"}}}, tg)
	if r != Failure || given != tg.Timeout || left < tg.Timeout+time.Minute {
		t.Errorf("got result %v (%s), %s for the command and %s for the call, want a failure, %s and at least a minute more", r, out, given, left, tg.Timeout)
	}
}

func TestTCPProbeWantsAnOpenPort(t *testing.T) {
	trace.Proves(t, "PLC-023")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host, port := hostPort(t, l.Addr().String())
	h := &v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(int32(port))}}
	check(t, h, target(host), want{"open", Success, ""})
	l.Close()
	check(t, h, target(host), want{"closed", Failure, "refused"})
	h.TCPSocket.Host = "127.0.0.1"
	check(t, h, target("192.0.2.1"), want{"other host", Failure, "refused"})
}

func TestGRPCProbeAsksForHealth(t *testing.T) {
	trace.Proves(t, "C-303")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, state := grpc.NewServer(), health.NewServer()
	grpc_health_v1.RegisterHealthServer(s, state)
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	host, port := hostPort(t, l.Addr().String())
	service := "mine"
	h := &v1.ProbeHandler{GRPC: &v1.GRPCAction{Port: int32(port)}}
	check(t, h, target(host), want{"serving", Success, "service healthy"})
	h.GRPC.Service = &service
	check(t, h, target(host), want{"unknown service", Failure, ""})
	state.SetServingStatus("mine", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	check(t, h, target(host), want{"not serving", Failure, `service unhealthy (responded with "NOT_SERVING")`})
	s.Stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	gone := target(host)
	gone.Timeout = 50 * time.Millisecond
	check(t, h, gone, want{"gone", Failure, fmt.Sprintf("timeout: failed to connect service %q within 50ms: context deadline exceeded", l.Addr())})
}
