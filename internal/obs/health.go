package obs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Check answers whether one part of the process works.
type Check struct {
	// Name is what people ask for it by, such as etcd or poststarthook/rbac/bootstrap-roles.
	Name string
	// Run returns nil when the part works. It must return soon after ctx ends
	// and may be called by several goroutines at once.
	Run func(ctx context.Context) error
	// ReadyOnly keeps the check out of liveness: while it fails, requests
	// should go elsewhere, but a restart would not help.
	ReadyOnly bool
}

// Done is a check of a step of the start: it fails until the channel is closed.
func Done(ch <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		select {
		case <-ch:
			return nil
		default:
			return errors.New("not finished")
		}
	}
}

// checkTimeout bounds one run of one check.
const checkTimeout = 10 * time.Second

// Health is the set of a process's checks. The zero value has only those that
// every process has (ping: it answers; log: its log is written) and is healthy;
// checks are added while parts start. All methods may be called by
// several goroutines at once.
type Health struct {
	// Log, when set, gets one warning for each failed check of a request: its
	// reason is not in the answer, which anybody may read. It is checked itself.
	Log *slog.Logger

	mu struct {
		sync.Mutex
		checks []Check
		ran    slis
	}
}

// Add adds checks. A name that is already there is a broken invariant.
func (h *Health) Add(checks ...Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range checks {
		if slices.ContainsFunc(h.mu.checks, func(old Check) bool { return old.Name == c.Name }) {
			panic(fmt.Sprintf("obs: health check %q added twice", c.Name))
		}
		h.mu.checks = append(h.mu.checks, c)
	}
}

// list returns the checks that count for readiness, or for liveness alone.
func (h *Health) list(ready bool) []Check {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := []Check{
		{Name: "ping", Run: func(context.Context) error { return nil }}, // that it answers is the answer
		{Name: "log", Run: func(context.Context) error { return checkLog(h.Log) }},
	}
	for _, c := range h.mu.checks {
		if ready || !c.ReadyOnly {
			out = append(out, c)
		}
	}
	return out
}

// Ready runs all checks and returns the failures, joined: nil when the process
// is ready for requests.
func (h *Health) Ready(ctx context.Context) error {
	var failed []error
	for _, c := range h.list(true) {
		if err := run(ctx, c); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	return errors.Join(failed...)
}

func run(ctx context.Context, c Check) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, fmt.Errorf("no answer within %s", checkTimeout))
	defer cancel()
	return c.Run(ctx)
}

// defaultEndpoints are those that a server of Kubernetes has.
var defaultEndpoints = []string{"livez", "readyz", "healthz"}

// Install adds endpoints to mux, livez, readyz and healthz (which equals livez)
// unless others are named, and the single checks below them. They answer as
// Kubernetes' own do: "ok", or with ?verbose or on failure one line for each check;
// ?exclude=<name> leaves a check out.
func (h *Health) Install(mux *http.ServeMux, endpoints ...string) {
	if len(endpoints) == 0 {
		endpoints = defaultEndpoints
	}
	for _, endpoint := range endpoints {
		ready := endpoint == "readyz"
		mux.HandleFunc("/"+endpoint, func(w http.ResponseWriter, r *http.Request) { h.serveAll(w, r, endpoint, ready) })
		mux.HandleFunc("/"+endpoint+"/{check...}", func(w http.ResponseWriter, r *http.Request) { h.serveOne(w, r, endpoint) })
	}
}

func (h *Health) serveAll(w http.ResponseWriter, r *http.Request, endpoint string, ready bool) {
	query := r.URL.Query()
	unknown := slices.Compact(slices.Sorted(slices.Values(query["exclude"])))
	excluded := slices.Clone(unknown)
	var lines strings.Builder
	failed := false
	for _, c := range h.list(ready) {
		if slices.Contains(excluded, c.Name) {
			unknown = slices.DeleteFunc(unknown, func(name string) bool { return name == c.Name })
			fmt.Fprintf(&lines, "[+]%s excluded: ok\n", c.Name)
			continue
		}
		if err := h.run(r.Context(), endpoint, c); err != nil {
			failed = true
			fmt.Fprintf(&lines, "[-]%s failed: reason withheld\n", c.Name)
			h.logFailure(r.Context(), endpoint, c.Name, err)
			continue
		}
		fmt.Fprintf(&lines, "[+]%s ok\n", c.Name)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(&lines, "warn: some health checks cannot be excluded: no matches for %s\n", quoted(unknown))
	}
	if failed {
		http.Error(w, lines.String()+endpoint+" check failed", http.StatusInternalServerError)
		return
	}
	if !query.Has("verbose") {
		writeText(w, "ok")
		return
	}
	writeText(w, lines.String()+endpoint+" check passed\n")
}

func (h *Health) serveOne(w http.ResponseWriter, r *http.Request, endpoint string) {
	checks := h.list(endpoint == "readyz")
	i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == r.PathValue("check") })
	if i < 0 {
		http.NotFound(w, r)
		return
	}
	if err := h.run(r.Context(), endpoint, checks[i]); err != nil {
		http.Error(w, fmt.Sprintf("internal server error: %v", err), http.StatusInternalServerError)
		return
	}
	writeText(w, "ok")
}

func (h *Health) logFailure(ctx context.Context, endpoint, check string, err error) {
	if h.Log != nil {
		h.Log.WarnContext(ctx, "health check failed", "endpoint", endpoint, "check", check, "err", err)
	}
}

// quoted renders names as "a", "b".
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(out, ",")
}

// writeText answers 200 with s. An error means that the client has gone.
func writeText(w http.ResponseWriter, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(s))
}
