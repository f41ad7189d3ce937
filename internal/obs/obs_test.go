package obs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	stdlog "log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

func TestLogHasTheLevelAndFormatOfItsFlags(t *testing.T) {
	var o LogOptions
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.AddFlags(flags)
	if err := flags.Parse([]string{"--log-level=warn", "--log-format=json"}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	log, err := NewLogger(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	log.Info("unseen")
	log.Warn("seen", "pod", "a/b")
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("log %q: %v", out.String(), err)
	}
	if line["msg"] != "seen" || line["pod"] != "a/b" || line["level"] != "WARN" {
		t.Errorf("log line: got %v", line)
	}
}

func TestBadLogOptionsAreRefused(t *testing.T) {
	for _, o := range []LogOptions{{Level: "loud"}, {Format: "xml"}} {
		if _, err := NewLogger(&bytes.Buffer{}, o); err == nil {
			t.Errorf("NewLogger(%+v): got no error", o)
		}
	}
}

func TestMessagesOfLibrariesAreQuiet(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	CaptureKlog(log)
	defer klog.ClearLogger()
	klog.ErrorS(errors.New("unexpected EOF"), "Error on socket receive")
	klog.ErrorS(errors.New("error forwarding port 9999 to pod x: connection refused"), "Unhandled Error")
	klog.ErrorS(errors.New("error executing command in container: no such program"), "Unhandled Error")
	if got := out.String(); got != "" {
		t.Errorf("log of what is one client's affair: got %q, want nothing", got)
	}
	klog.ErrorS(errors.New("lost my watch"), "Unhandled Error")
	if got := out.String(); !strings.Contains(got, "level=ERROR") {
		t.Errorf("log of another unhandled error: got %q, want it", got)
	}
	klog.Info("chatter")
	klog.ErrorS(errors.New("no route"), "trouble")
	if got := out.String(); strings.Contains(got, "chatter") || !strings.Contains(got, "msg=trouble") || !strings.Contains(got, "component=library") {
		t.Errorf("log: got %q", got)
	}
}

func TestMetricsServeTheBuild(t *testing.T) {
	w := httptest.NewRecorder()
	MetricsHandler(NewRegistry(), slog.New(slog.DiscardHandler)).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, want := range []string{"kubernetes_build_info{", `minor="37"`, "go_goroutines ", "process_resident_memory_bytes "} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("metrics: no %s", want)
		}
	}
}

func TestHealthAnswersAsKubernetesDoes(t *testing.T) {
	var h Health
	broken := errors.New("disk on fire")
	h.Add(
		Check{Name: "etcd", Run: func(context.Context) error { return nil }},
		Check{Name: "caches", ReadyOnly: true, Run: func(context.Context) error { return broken }},
		Check{Name: "poststarthook/rbac/roles", Run: func(context.Context) error { return nil }},
	)
	mux := http.NewServeMux()
	h.Install(mux)
	cases := []struct {
		path string
		code int
		body string
	}{
		{"/livez", 200, "ok"},
		{"/healthz", 200, "ok"},
		{"/livez?verbose", 200, "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]poststarthook/rbac/roles ok\nlivez check passed\n"},
		{"/readyz", 500, "[+]ping ok\n[+]log ok\n[+]etcd ok\n[-]caches failed: reason withheld\n[+]poststarthook/rbac/roles ok\nreadyz check failed\n"},
		{"/readyz?exclude=caches", 200, "ok"},
		{"/readyz?verbose&exclude=caches&exclude=nope", 200,
			"[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]caches excluded: ok\n[+]poststarthook/rbac/roles ok\nwarn: some health checks cannot be excluded: no matches for \"nope\"\nreadyz check passed\n"},
		{"/readyz/etcd", 200, "ok"},
		{"/livez/poststarthook/rbac/roles", 200, "ok"},
		{"/readyz?verbose&exclude=caches&exclude=poststarthook/rbac/roles", 200,
			"[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]caches excluded: ok\n[+]poststarthook/rbac/roles excluded: ok\nreadyz check passed\n"},
		{"/livez/poststarthook", 404, "404 page not found\n"},
		{"/readyz/caches", 500, "internal server error: disk on fire\n"},
		{"/livez/caches", 404, "404 page not found\n"},
	}
	for _, tc := range cases {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, tc.path, nil))
		if w.Code != tc.code || w.Body.String() != tc.body {
			t.Errorf("GET %s: got %d %q, want %d %q", tc.path, w.Code, w.Body.String(), tc.code, tc.body)
		}
	}
	mux.Handle("GET /metrics/slis", h.SLIs(slog.New(slog.DiscardHandler)))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics/slis", nil))
	for _, want := range []string{
		`kubernetes_healthcheck{name="etcd",type="livez"} 1`, `kubernetes_healthcheck{name="caches",type="readyz"} 0`,
		`kubernetes_healthchecks_total{name="caches",status="error",type="readyz"} 3`, `kubernetes_healthchecks_total{name="ping",status="success",type="healthz"} 2`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("/metrics/slis: got %s, want %s", w.Body, want)
		}
	}
	if err := h.Ready(t.Context()); !errors.Is(err, broken) || err.Error() != "caches: disk on fire" {
		t.Errorf("Ready: got %v", err)
	}
}

// full is a disk without room, until there is some.
type full struct{ err error }

func (f *full) Write(p []byte) (int, error) { return len(p), f.err }

func TestLogThatIsNotWrittenIsUnhealthy(t *testing.T) {
	disk := &full{}
	log, err := NewLogger(disk, LogOptions{Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	h := Health{Log: log.With("part", "test")}
	for _, broken := range []error{nil, errors.New("no space left on device"), nil} {
		disk.err = broken
		log.WithGroup("g").Warn("seen")
		if err := h.Ready(t.Context()); !errors.Is(err, broken) {
			t.Errorf("with %v: got %v", broken, err)
		}
	}
}

func TestHangingCheckFailsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		h.Add(Check{Name: "stuck", Run: func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		if err := h.Ready(t.Context()); err == nil || err.Error() != "stuck: no answer within 10s" {
			t.Errorf("Ready: got %v", err)
		}
	})
}

func TestSameCheckTwicePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var h Health
	h.Add(Check{Name: "a"}, Check{Name: "a"})
}

// It belongs to the process: no test beside it may write there.
func TestStandardLoggerIsInformation(t *testing.T) {
	flags, output := stdlog.Flags(), stdlog.Writer()
	defer func() {
		stdlog.SetFlags(flags)
		stdlog.SetOutput(output)
	}()
	var b strings.Builder
	CaptureStandard(slog.New(slog.NewTextHandler(&b, nil)))
	stdlog.Print("[ERROR] plugin/errors: 2 www.example.com. A: i/o timeout")
	if want := "level=INFO msg=\"[ERROR] plugin/errors: 2 www.example.com. A: i/o timeout\" component=library\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %q, want it to end in %q", b.String(), want)
	}
}
