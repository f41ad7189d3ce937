package apiserver

import (
	"bytes"
	"io"
	"net/http"

	"github.com/kemudi/kemudi/internal/obs"
)

// pages are what the server tells of itself, by upstream's name of it.
func (s *Server) pages() *obs.Pages {
	return &obs.Pages{Component: "apiserver", Began: s.began, Level: s.o.Serving.Emulation.Level, Paths: s.paths}
}

// serveVerbosity sets how much is logged. The body has been read before.
func (s *Server) serveVerbosity(w http.ResponseWriter, r *http.Request) {
	r.Body = io.NopCloser(bytes.NewReader(stateOf(r).body))
	obs.Verbosity{Log: s.log}.ServeHTTP(w, r)
}
