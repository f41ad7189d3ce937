package apiserver

import (
	"crypto/sha512"
	"fmt"
	"net/http"
	"strings"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kemudi/kemudi/internal/accept"
	"github.com/kemudi/kemudi/internal/apiserver/answer"
	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/served"
)

// serveDiscovery answers /api, /apis and the documents below them.
func (s *Server) serveDiscovery(w http.ResponseWriter, r *http.Request) {
	d := s.docs()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var serve func()
	switch {
	case len(parts) == 1 && parts[0] == "api":
		serve = func() {
			s.serveRootDiscovery(w, r, d.Core, &metav1.APIVersions{
				Versions:                   []string{"v1"},
				ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: r.Host}},
			})
		}
	case len(parts) == 1:
		serve = func() { s.serveRootDiscovery(w, r, d.Named, d.Groups) }
	case parts[0] == "api" && len(parts) == 2 && d.Resources[schema.GroupVersion{Version: parts[1]}] != nil:
		serve = func() { s.serveDoc(w, r, bare("APIResourceList"), d.Resources[schema.GroupVersion{Version: parts[1]}]) }
	case parts[0] == "apis" && len(parts) == 2 && d.ByGroup[parts[1]] != nil:
		serve = func() { s.serveDoc(w, r, metaV1("APIGroup"), d.ByGroup[parts[1]]) }
	case parts[0] == "apis" && len(parts) == 3 && d.Resources[schema.GroupVersion{Group: parts[1], Version: parts[2]}] != nil:
		gvk := metaV1("APIResourceList")
		if parts[1] == "extensions" {
			gvk = bare("APIResourceList")
		}
		serve = func() { s.serveDoc(w, r, gvk, d.Resources[schema.GroupVersion{Group: parts[1], Version: parts[2]}]) }
	}
	switch {
	case serve == nil && parts[0] == "api":
		s.serveMissing(w, r, "")
	case serve == nil:
		s.serveMissing(w, r, parts[1])
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		s.writeError(w, r, refusal.MethodNotAllowed())
	default:
		serve()
	}
}

// metaV1 is a kind of documents as most of them say it.
func metaV1(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// bare is a kind of documents that are as old as clients that do not want to see a version in them.
func bare(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Kind: kind} }

// serveDoc answers with a document of meta/v1.
func (s *Server) serveDoc(w http.ResponseWriter, r *http.Request, gvk schema.GroupVersionKind, doc runtime.Object) {
	a, err := request.Negotiate(r, request.Allowed{})
	if err == nil {
		var body []byte
		body, err = served.AppendAny(nil, a.Media, gvk, doc)
		if err == nil {
			answer.Send(w, http.StatusOK, a, body)
			return
		}
	} else if !request.Named(r.Header.Get("Accept"), request.Types...) {
		err = refusal.NoRepresentation(request.Types)
	}
	s.writeError(w, r, err)
}

// serveRootDiscovery answers with everything at once to clients that can read
// it, and with the classic document to others.
func (s *Server) serveRootDiscovery(w http.ResponseWriter, r *http.Request, all *apidiscovery.APIGroupDiscoveryList, classic runtime.Object) {
	w.Header().Set("Vary", "Accept")
	version, m, ok := wantsAggregated(r.Header.Get("Accept"))
	if !ok {
		gvk := metaV1("APIGroupList")
		if _, core := classic.(*metav1.APIVersions); core {
			gvk = bare("APIVersions")
		}
		s.serveDoc(w, r, gvk, classic)
		return
	}
	gvk := schema.GroupVersionKind{Group: "apidiscovery.k8s.io", Version: version, Kind: "APIGroupDiscoveryList"}
	body, err := served.AppendAny(nil, m, gvk, all)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	kind := request.JSON
	if m == request.MediaProto {
		kind = request.Proto
	}
	etag := fmt.Sprintf("%q", fmt.Sprintf("%X", sha512.Sum512(body)))
	w.Header().Set("Content-Type", kind+";g=apidiscovery.k8s.io;v="+version+";as=APIGroupDiscoveryList")
	w.Header().Set("ETag", etag)
	w.Header().Set("Cache-Control", "public")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(body) // an error means that the client has gone
}

// wantsAggregated looks for the aggregated form among the alternatives that
// come before the plain one.
func wantsAggregated(header string) (version string, m request.Media, ok bool) {
	for _, c := range accept.Parse(header) {
		m = request.MediaJSON
		switch c.Kind {
		case request.Proto:
			m = request.MediaProto
		case request.JSON, "*/*", "application/*":
		default:
			continue
		}
		if c.Params["as"] == "" {
			return "", m, false
		}
		v := c.Params["v"]
		if c.Params["g"] == "apidiscovery.k8s.io" && c.Params["as"] == "APIGroupDiscoveryList" && (v == "v2" || v == "v2beta1") {
			return v, m, true
		}
	}
	return "", m, false
}
