package kubelet

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kemudi/kemudi/internal/api/coordination"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/kubelet/fakecri"
	"github.com/kemudi/kemudi/internal/resource"
)

// bomb panics as often as it says.
type bomb struct{ left atomic.Int32 }

func (b *bomb) tick() {
	if b.left.Add(-1) >= 0 {
		panic("boom")
	}
}

// errorLog holds the lines of a log that are errors.
type errorLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *errorLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(p, []byte("level=ERROR")) {
		l.lines = append(l.lines, string(p))
	}
	return len(p), nil
}

func (l *errorLog) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// sink panics with some events, and hands the others on.
type sink struct {
	*memAPI
	b      *bomb
	reason string
}

func (s sink) Event(obj resource.Object, kind, reason, message string) {
	if reason == s.reason && obj.GetName() == "bad" {
		s.b.tick()
	}
	s.memAPI.Event(obj, kind, reason, message)
}

// mined is a runtime whose calls may panic.
type mined struct {
	*fakecri.Runtime
	runs, stops *bomb // of the sandboxes of pod bad, of all containers; nil: they do not
}

func (m mined) RunPodSandbox(ctx context.Context, in *runtimeapi.RunPodSandboxRequest, o ...grpc.CallOption) (*runtimeapi.RunPodSandboxResponse, error) {
	if m.runs != nil && in.Config.Metadata.Name == "bad" {
		m.runs.tick()
	}
	return m.Runtime.RunPodSandbox(ctx, in, o...)
}

func (m mined) StopContainer(ctx context.Context, in *runtimeapi.StopContainerRequest, o ...grpc.CallOption) (*runtimeapi.StopContainerResponse, error) {
	if m.stops != nil {
		m.stops.tick()
	}
	return m.Runtime.StopContainer(ctx, in, o...)
}

const panics = 3

func TestPanicForOnePodIsNoOthersBusiness(t *testing.T) {
	ready := func(p *v1.Pod) bool { return p != nil && core.PodReady(p) }
	gone := func(p *v1.Pod) bool { return p == nil }
	exec := func(b *bomb) fakecri.Options {
		return fakecri.Options{Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) { b.tick(); return "", 0 }}
	}
	for _, tc := range []struct {
		name, spec string
		options    func(*bomb) fakecri.Options
		runtime    func(*bomb, *fakecri.Runtime) mined
		reason     string // of the event that panics
		ends       bool   // the pod is deleted
		done       func(*v1.Pod) bool
		panics     int // default: each time
	}{
		{name: "an image is pulled", spec: `{containers: [{name: c, image: broken, imagePullPolicy: Always}]}`, done: ready, options: func(b *bomb) fakecri.Options {
			return fakecri.Options{Pull: func(_ context.Context, image string) error {
				if strings.Contains(image, "broken") {
					b.tick()
				}
				return nil
			}}
		}},
		{name: "a sandbox is made", spec: `{containers: [{name: c, image: x}]}`, done: ready, runtime: func(b *bomb, r *fakecri.Runtime) mined { return mined{Runtime: r, runs: b} }},
		{name: "a container is stopped", spec: `{containers: [{name: c, image: x}]}`, ends: true, done: gone, runtime: func(b *bomb, r *fakecri.Runtime) mined { return mined{Runtime: r, stops: b} }},
		{name: "a probe is carried out", spec: `{containers: [{name: c, image: x, readinessProbe: {exec: {command: [x]}, periodSeconds: 1}}]}`, done: ready, options: exec},
		{name: "a hook is run", spec: `{containers: [{name: c, image: x, lifecycle: {preStop: {exec: {command: [x]}}}}]}`, options: exec, ends: true, done: gone, panics: 1},
		{name: "an action is prepared", spec: `{containers: [{name: c, image: x}]}`, reason: "Killing", ends: true, done: gone},
		{name: "the next step is looked for", spec: `{containers: [{name: c, image: x, command: [sh, -c, "sleep 5; false"]}]}`, reason: "BackOff", done: func(p *v1.Pod) bool {
			return p != nil && p.Status.ContainerStatuses[0].RestartCount > 2
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, log := &bomb{}, &errorLog{}
				var o fakecri.Options
				if tc.options != nil {
					o = tc.options(b)
				}
				n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(o)}
				n.with = func(o *Options) {
					if tc.runtime != nil {
						o.Runtime = tc.runtime(b, n.cri)
					}
					o.Log, o.Events = slog.New(slog.NewTextHandler(log, nil)), sink{n.api, b, tc.reason}
				}
				n.run()
				defer func() { n.end() }()
				if !tc.ends {
					b.left.Store(panics)
				}
				createPod(t, n.api, "bad", tc.spec)
				if tc.ends {
					n.pod("bad")
					b.left.Store(panics)
					deletePod(t, n.api, "bad", 30)
				}
				createPod(t, n.api, "good", `{containers: [{name: c, image: good}]}`)
				if p := n.pod("good"); !ready(p) {
					t.Errorf("another pod: got %+v, want it ready", p.Status)
				}
				if p := n.after(5*time.Minute, "bad"); !tc.done(p) {
					t.Errorf("the pod itself, a while later: got %+v", p)
				}
				want := panics
				if tc.panics > 0 {
					want = tc.panics
				}
				lines := log.take()
				if len(lines) != want {
					t.Errorf("got %d errors, want %d: %s", len(lines), want, strings.Join(lines, ""))
				}
				for _, line := range lines {
					if !strings.Contains(line, "pod=default/bad") || !strings.Contains(line, "panic: boom") || !strings.Contains(line, "contain_test.go") {
						t.Errorf("got %s, want the pod, the panic and its stack", line)
					}
				}
			})
		})
	}
}

func TestAgentOutlivesPanicsOfItsParts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b, log := &bomb{}, &errorLog{}
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{Exec: func(*runtimeapi.ContainerConfig, []string) (string, int32) { b.tick(); return "hi", 0 }})}
		n.with = func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) }
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")

		b.left.Store(1)
		ask := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			n.agent.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/run/default/web/c?cmd=x", nil))
			return w
		}
		if w := ask(); w.Code != 500 {
			t.Errorf("a request that panics: got %d %s, want 500", w.Code, w.Body)
		}
		if w := ask(); w.Code != 200 || w.Body.String() != "hi" {
			t.Errorf("the next one: got %d %s", w.Code, w.Body)
		}
		if lines := log.take(); len(lines) != 1 || !strings.Contains(lines[0], "path=/run/default/web/c") {
			t.Errorf("got errors %v, want one", lines)
		}

		n.api.RefuseWith(func(r *client.Request) error {
			if r.Def == coordination.Leases.Def {
				b.tick()
			}
			return nil
		})
		b.left.Store(panics)
		began := time.Now()
		n.after(2*time.Minute, "web")
		lease, err := client.For(n.api, coordination.Leases).Get(t.Context(), v1.NamespaceNodeLease, "n1")
		if err != nil || lease.Spec.RenewTime.Sub(began) < time.Minute {
			t.Errorf("lease after panics of the heartbeat: got %+v, %v, want it renewed", lease, err)
		}
		if lines := log.take(); len(lines) != panics {
			t.Errorf("got errors %v, want %d", lines, panics)
		}
	})
}

// holder holds up who tells it that a container is killed.
type holder struct {
	*memAPI
	hold chan struct{} // closed when it does no more
}

func (h holder) Event(obj resource.Object, kind, reason, message string) {
	if reason == "Killing" {
		<-h.hold
	}
	h.memAPI.Event(obj, kind, reason, message)
}

func TestHealthOfTheAgentHasUpstreamsNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hold := make(chan struct{})
		n := &testNode{t: t, api: newMemAPI(t), cri: fakecri.New(fakecri.Options{Program: deaf})}
		n.with = func(o *Options) { o.Events = holder{n.api, hold} }
		n.run()
		defer func() { n.end() }()
		createPod(t, n.api, "web", `{containers: [{name: c, image: x}]}`)
		n.pod("web")
		ask := func(path string) (int, string) {
			w := httptest.NewRecorder()
			n.agent.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			return w.Code, w.Body.String()
		}
		for path, want := range map[string]string{
			"/healthz": "ok", "/healthz?verbose": "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n",
			"/healthz/ping": "ok", "/healthz/log": "ok", "/healthz/syncloop": "ok",
		} {
			if code, got := ask(path); code != 200 || got != want {
				t.Errorf("%s: got %d %q, want %q", path, code, got, want)
			}
		}
		if code, _ := ask("/healthz/none"); code != 404 {
			t.Errorf("no such check: got %d, want 404", code)
		}
		deletePod(t, n.api, "web", 30) // the event of it holds the pod's actor
		n.after(time.Second, "web")
		deletePod(t, n.api, "web", 20) // an update that waits
		if code, _ := ask("/healthz/syncloop"); code != 200 {
			t.Errorf("an actor that is busy for a moment: got %d, want 200", code)
		}
		n.after(5*time.Minute+time.Second, "web")
		if code, got := ask("/healthz"); code != 500 || !strings.Contains(got, "[-]syncloop failed") {
			t.Errorf("an actor that hangs: got %d %s, want 500", code, got)
		}
		close(hold)
		n.after(time.Second, "web")
		if code, _ := ask("/healthz"); code != 200 {
			t.Errorf("an actor that goes on: got %d, want 200", code)
		}
	})
}
