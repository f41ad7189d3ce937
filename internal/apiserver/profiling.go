package apiserver

import (
	"io"
	"net/http"
	"net/http/pprof"
)

// serveProfiles serves profiles of the process, by upstream's paths, to who may get those. They
// are in no list of paths, and nothing is measured that Go does not measure anyway until
// somebody asks for it.
func serveProfiles(mux *http.ServeMux) {
	mux.Handle("/debug/pprof", http.RedirectHandler("/debug/pprof/", http.StatusFound))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// serveFlows shows how many requests run and wait, by upstream's paths.
func (s *Server) serveFlows(mux *http.ServeMux) {
	for path, dump := range map[string]func(w io.Writer, details bool) error{
		"/debug/api_priority_and_fairness/dump_priority_levels": func(w io.Writer, _ bool) error { return s.flows.DumpLevels(w) },
		"/debug/api_priority_and_fairness/dump_queues":          func(w io.Writer, _ bool) error { return s.flows.DumpQueues(w) },
		"/debug/api_priority_and_fairness/dump_requests":        s.flows.DumpRequests,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			_ = dump(w, r.URL.Query().Get("includeRequestDetails") != "") // an error means that the client has gone
		})
	}
}
