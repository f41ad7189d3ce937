package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/apiserver/discovery"
)

// serveOpenAPI answers with the documents of what is served here, and with those that other servers have of
// their group-versions.
func (s *Server) serveOpenAPI(w http.ResponseWriter, r *http.Request) {
	here := s.routes.Load().schema
	if s.o.Aggregated == nil {
		here.ServeHTTP(w, r)
		return
	}
	path := strings.TrimSuffix(r.URL.Path, "/")
	if e := s.withOthers(); e != nil {
		switch path {
		case "/openapi/v2":
			e.schema.ServeHTTP(w, r)
			return
		case "/openapi/v3":
			s.serveOpenAPIIndex(w, r, e.others)
			return
		}
	}
	name, _ := strings.CutPrefix(path, "/openapi/v3/apis/")
	group, version, _ := strings.Cut(name, "/")
	gv := schema.GroupVersion{Group: group, Version: version}
	if !s.o.Aggregated.Has(gv) {
		if s.yields(s.routes.Load(), group) {
			http.NotFound(w, r)
			return
		}
		here.ServeHTTP(w, r)
		return
	}
	r = r.Clone(r.Context())
	r.URL.RawQuery = "" // what it was when the index was read is not asked for: that may be an older one
	s.o.Aggregated.Serve(w, r, gv, stateOf(r).user)
}

// serveOpenAPIIndex answers with where all documents are.
func (s *Server) serveOpenAPIIndex(w http.ResponseWriter, r *http.Request, others *discovery.Others) {
	a := &heldAnswer{header: http.Header{}, code: http.StatusOK}
	r = r.Clone(r.Context())
	r.Header.Del("If-None-Match") // it is of this list with those of others
	s.routes.Load().schema.ServeHTTP(a, r)
	type place struct {
		URL string `json:"serverRelativeURL"`
	}
	var index struct {
		Paths map[string]place `json:"paths"`
	}
	if err := json.Unmarshal(a.body.Bytes(), &index); err != nil {
		s.writeError(w, r, apierrors.NewInternalError(err))
		return
	}
	docs := s.routes.Load().docs
	for name := range index.Paths {
		group, _, _ := strings.Cut(strings.TrimPrefix(name, "apis/"), "/")
		if docs.Yields(group, others) {
			delete(index.Paths, name)
		}
	}
	for i := range others.Versions {
		v := &others.Versions[i]
		name := "apis/" + v.GroupVersion.String()
		delete(index.Paths, name)
		if v.Document != "" {
			index.Paths[name] = place{v.Document}
		}
	}
	writeJSON(w, index)
}
