package server

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"runtime/debug"
	"time"

	"github.com/kemudi/kemudi/internal/kubelet/systemlog"
	"github.com/kemudi/kemudi/internal/obs"
)

// Settings are what people tune of what an agent serves, each by the flag that is named. The zero value has the
// defaults.
type Settings struct {
	NoDebugging  bool          // --enable-debugging-handlers=false: only health, metrics, statistics and the list of pods
	NoSystemLogs bool          // --enable-system-log-handler=false: the machine's own logs are not served
	LogQueries   bool          // --enable-system-log-query: they can be asked by ?query=
	NoProfiles   bool          // --enable-profiling-handler=false
	NoVerbosity  bool          // --enable-debug-flags-handler=false: how much is logged cannot be said
	StreamIdle   time.Duration // --streaming-connection-idle-timeout
}

// Handler serves the agent's API: what the API server asks nodes for. Whoever
// serves it must have made sure that the caller may ask.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	health := &obs.Health{Log: s.o.Log}
	health.Add(obs.Check{Name: "syncloop", Run: s.checkActors})
	health.Install(mux, "healthz")
	mux.HandleFunc("GET /pods", s.servePods)
	mux.HandleFunc("GET /pods/{$}", s.servePods)
	for _, path := range []string{"/allocatedPods", "/allocatedPods/{$}", "/allocatedPods/{namespace}/{pod}", "/allocatedPods/{namespace}/{pod}/{uid}"} {
		mux.HandleFunc("GET "+path, s.serveAllocated)
	}
	mux.HandleFunc("GET /stats/summary", s.serveSummary)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	mux.Handle("GET /metrics/slis", health.SLIs(s.o.Log, "healthz"))
	mux.HandleFunc("GET /metrics/resource", s.serveResources)
	mux.HandleFunc("GET /metrics/cadvisor", s.serveScrape)
	mux.HandleFunc("GET /metrics/probes", s.serveProbes)
	if s.o.Settings.NoDebugging {
		for _, path := range debugging {
			mux.HandleFunc(path, disabled("Debug endpoints are disabled."))
		}
	} else {
		s.installDebugging(mux)
	}
	return s.guarded(s.requests.counted(mux, s.traced))
}

// debugging are the paths that --enable-debugging-handlers is about.
var debugging = []string{"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", obs.ProfilesPath + "/", "/logs/"}

// disabled answers that something is turned off.
func disabled(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, http.StatusMethodNotAllowed) }
}

// installDebugging serves what lets people look into containers, the machine and the agent.
func (s *Server) installDebugging(mux *http.ServeMux) {
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", s.serveLogs)
	for path, h := range map[string]http.HandlerFunc{"exec": s.serveExec, "attach": s.serveAttach} {
		for _, tail := range []string{"/{namespace}/{pod}/{container}", "/{namespace}/{pod}/{uid}/{container}"} {
			mux.HandleFunc("GET /"+path+tail, h)
			mux.HandleFunc("POST /"+path+tail, h)
		}
	}
	for _, path := range []string{"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"} {
		mux.HandleFunc("GET "+path, s.servePortForward)
		mux.HandleFunc("POST "+path, s.servePortForward)
	}
	mux.HandleFunc("POST /run/{namespace}/{pod}/{container}", s.serveRun)
	mux.HandleFunc("POST /run/{namespace}/{pod}/{uid}/{container}", s.serveRun)
	mux.HandleFunc("POST /checkpoint/{namespace}/{pod}/{container}", s.serveCheckpoint)
	mux.HandleFunc("GET /configz", s.serveConfig)
	mux.HandleFunc("GET /runningpods/{$}", s.serveRunning)
	if s.o.Settings.NoSystemLogs {
		mux.HandleFunc("/logs/", disabled("logs endpoint is disabled."))
	} else {
		mux.Handle("GET /logs/", http.StripPrefix("/logs", systemlog.Logs{Dir: systemLogDir, Queries: s.o.Settings.LogQueries, Own: systemlog.OwnLog()}.Handler()))
	}
	if s.o.Settings.NoProfiles {
		mux.HandleFunc(obs.ProfilesPath+"/", disabled("profiling endpoint is disabled."))
	} else {
		obs.InstallProfiles(mux)
		mux.HandleFunc(obs.ProfilesPath+"/cmdline", pprof.Cmdline)
	}
	if s.o.Settings.NoVerbosity {
		mux.HandleFunc(obs.VerbosityPath, disabled("flags endpoint is disabled."))
	} else {
		mux.Handle(obs.VerbosityPath, obs.Verbosity{Log: s.o.Log})
	}
	(&obs.Pages{Component: "kubelet", Began: s.began, Paths: func() []string { return readable }}).Install(mux)
}

// readable are the paths that show something of the agent.
var readable = []string{"/allocatedPods", "/configz", "/debug", "/flagz", "/healthz", "/logs", "/metrics", "/pods", "/runningpods", "/stats", "/statusz"}

// systemLogDir is where the machine's programs keep their logs.
const systemLogDir = "/var/log"

// guarded answers for a handler that panics.
func (s *Server) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p) // net/http cuts the connection off
			}
			s.o.Log.ErrorContext(r.Context(), "node agent panicked", "part", "API", "method", r.Method, "path", r.URL.Path, "err", fmt.Sprintf("panic: %v\n%s", p, debug.Stack()))
			http.Error(w, "This request caused the node agent to panic. Look in the logs for details.", http.StatusInternalServerError)
		}()
		next.ServeHTTP(w, r)
	})
}
