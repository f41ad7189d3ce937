package apiserver

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/discovery"
	"github.com/kemudi/kemudi/internal/apiserver/openapi"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
)

// Aggregated has the group-versions that other servers have (aggregated APIs).
type Aggregated interface {
	// Has reports whether another server has a group-version, whatever is served here.
	Has(gv schema.GroupVersion) bool
	// Serve hands a request of a user on to the server that has its group-version, and answers.
	// What the client sends has not been read.
	Serve(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion, by user.Info)
	// Discovered is what there is on other servers: another value when that has changed; nil: nothing.
	Discovered() *discovery.Others
}

// elsewhere notes in what a request's path says whether another server is meant.
func (s *Server) elsewhere(in *request.Info, r *http.Request) {
	if s.o.Aggregated == nil || in.Group == "" || in.Version == "" {
		return
	}
	if in.Elsewhere = s.o.Aggregated.Has(schema.GroupVersion{Group: in.Group, Version: in.Version}); in.Elsewhere {
		in.Upgrades = r.Header.Get("Upgrade") != ""
	}
}

// yields reports a group that is computed here, and not served while another server has a version of it.
func (s *Server) yields(t *routes, group string) bool {
	return s.o.Aggregated != nil && t.docs.Computed[group] && t.docs.Yields(group, s.o.Aggregated.Discovered())
}

// serveElsewhere has another server answer. Authorization has been done.
func (s *Server) serveElsewhere(w http.ResponseWriter, r *http.Request) {
	st := stateOf(r)
	st.unread = 0 // from here on the body is the other server's
	if st.info.LongRunning() {
		timeouts.Exempt(w)
	}
	s.o.Aggregated.Serve(w, r, schema.GroupVersion{Group: st.info.Group, Version: st.info.Version}, st.user)
}

// everywhere are the documents of what is served here, and of what others have: made again when either
// has changed.
type everywhere struct {
	here   *routes
	others *discovery.Others
	docs   *discovery.Docs
	schema *openapi.Service
}

// docs tell what there is.
func (s *Server) docs() *discovery.Docs {
	if e := s.withOthers(); e != nil {
		return e.docs
	}
	return s.routes.Load().docs
}

// withOthers are the documents with those of others; nil: there are no others.
func (s *Server) withOthers() *everywhere {
	if s.o.Aggregated == nil {
		return nil
	}
	here, others := s.routes.Load(), s.o.Aggregated.Discovered()
	if others == nil {
		return nil
	}
	e := s.everywhere.Load()
	if e == nil || e.here != here || e.others != others {
		versions := make([]openapi.Other, len(others.Versions))
		for i, v := range others.Versions {
			versions[i] = openapi.Other{GroupVersion: v.GroupVersion, Part: v.Swagger}
		}
		yields := func(group string) bool { return here.docs.Yields(group, others) }
		e = &everywhere{here, others, here.docs.With(others), here.schema.With(versions, yields)}
		s.everywhere.Store(e)
	}
	return e
}
