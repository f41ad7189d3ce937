package apiserver

import (
	"io"
	"net/http"
)

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
