package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
	"github.com/kemudi/kemudi/internal/apiserver/request"
	"github.com/kemudi/kemudi/internal/apiserver/timeouts"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/auth/node"
	"github.com/kemudi/kemudi/internal/dialback"
	"github.com/kemudi/kemudi/internal/obs"
)

// plainPaths serves the paths that are no resources.
func (s *Server) plainPaths() http.Handler {
	mux := http.NewServeMux()
	s.o.Health.Install(mux)
	if !s.o.NoProfiling {
		obs.InstallProfiles(mux) // in no list of paths
		mux.HandleFunc(obs.VerbosityPath, s.serveVerbosity)
	}
	s.serveFlows(mux)
	mux.Handle("/metrics", obs.MetricsHandler(s.o.Registry, s.log))
	mux.Handle("GET /metrics/slis", s.o.Health.SLIs(s.log))
	for _, path := range withSlash("/version") {
		mux.HandleFunc(path, s.onlyGet(func(w http.ResponseWriter, r *http.Request) {
			if !request.Named(r.Header.Get("Accept"), request.JSON) {
				s.writeError(w, r, refusal.NoRepresentation([]string{request.JSON}))
				return
			}
			writeJSON(w, s.o.Serving.Emulation.Level.Info())
		}))
	}
	pages := s.pages()
	for _, path := range withSlash("/statusz") {
		mux.HandleFunc("GET "+path, pages.Statusz)
	}
	for _, path := range withSlash("/flagz") {
		mux.HandleFunc("GET "+path, pages.Flagz)
	}
	mux.HandleFunc("/api", s.serveDiscovery)
	mux.HandleFunc("/api/", s.serveDiscovery)
	mux.HandleFunc("/apis", s.serveDiscovery)
	mux.HandleFunc("/apis/", s.serveDiscovery)
	mux.HandleFunc("GET /openapi/", s.serveOpenAPI)
	if s.o.Tokens != nil && s.o.Tokens.Publishes() {
		for _, path := range withSlash("/.well-known/openid-configuration") {
			mux.HandleFunc(path, s.onlyGet(s.serveDocument("application/json", s.o.Tokens.Discovery)))
		}
		for _, path := range withSlash(authn.KeySetPath) {
			mux.HandleFunc(path, s.onlyGet(s.serveDocument("application/jwk-set+json", s.o.Tokens.KeySet)))
		}
	}
	if s.o.Tunnels != nil {
		mux.HandleFunc("GET "+dialback.Path("{node}"), s.serveTunnel)
		mux.HandleFunc("GET "+dialback.RelayPath("{node}"), s.serveRelay)
	}
	for pattern, answer := range s.o.Plain {
		mux.HandleFunc(pattern, s.servePlain(answer))
	}
	mux.HandleFunc("/{$}", s.serveRoot)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		http.NotFound(w, r)
	})
	return mux
}

// addChecks adds what the server knows of its own health, by upstream's names.
func (s *Server) addChecks() {
	s.o.Health.Add(
		// Addresses and ports of services are allocated, and to nothing that is not there.
		obs.Check{Name: "poststarthook/start-service-ip-repair-controllers", Run: obs.Done(s.allocated)},
		// The server takes requests: while it stops, they should go elsewhere.
		obs.Check{Name: "shutdown", ReadyOnly: true, Run: func(context.Context) error {
			if s.stopping.Load() {
				return errors.New("process is shutting down")
			}
			return nil
		}},
	)
}

// withSlash are the patterns of a path that may end in a slash: OpenAPI documents
// name those that way.
func withSlash(path string) []string { return []string{path, path + "/{$}"} }

// onlyGet refuses all methods but GET.
func (s *Server) onlyGet(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			s.writeError(w, r, refusal.MethodNotAllowed())
			return
		}
		serve(w, r)
	}
}

// serveTunnel takes the connection that a node's agent keeps to this server. The
// agent alone may open it, whatever others may do: who has it answers in the name
// of the node.
func (s *Server) serveTunnel(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("node")
	if own, ok := node.Of(stateOf(r).user); !ok || own != name {
		s.writeError(w, r, refusal.Forbidden(attributesOf(r), fmt.Sprintf("only the agent of node %q opens its tunnel", name)))
		return
	}
	timeouts.Exempt(w)
	goesOn, end, err := s.o.Tunnels.Serve(w, r, name)
	switch {
	case err != nil:
		s.writeError(w, r, refusal.BadRequest("%v", err))
	case goesOn != nil:
		stateOf(r).goOn(goesOn, end)
	}
}

// servePlain serves one of the paths that the server's owner adds.
func (s *Server) servePlain(answer func(context.Context, PlainRequest) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		v, err := answer(r.Context(), PlainRequest{User: st.user, Name: r.PathValue("name"), Query: r.URL.Query(), Body: st.body})
		if err != nil {
			s.writeError(w, r, err)
			return
		}
		if h, ok := v.(http.Handler); ok {
			h.ServeHTTP(w, r)
			return
		}
		writeJSON(w, v)
	}
}

// serveRelay connects another server to a node that has its tunnel to this one. Servers
// alone may ask for it: what is at the other end is not asked again who it is that comes.
func (s *Server) serveRelay(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains(stateOf(r).user.GetGroups(), user.SystemPrivilegedGroup) {
		s.writeError(w, r, refusal.Forbidden(attributesOf(r), "only other servers are connected to nodes by their tunnels to this one"))
		return
	}
	timeouts.Exempt(w)
	if err := s.o.Tunnels.Relay(w, r, r.PathValue("node")); err != nil {
		s.writeError(w, r, refusal.BadRequest("%v", err))
	}
}

// serveDocument serves what the issuer of tokens publishes about itself.
func (s *Server) serveDocument(mediaType string, document func() ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		data, err := document()
		if err != nil {
			s.writeError(w, r, apierrors.NewInternalError(err))
			return
		}
		w.Header().Set("Content-Type", mediaType)
		w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d", int64(s.o.Tokens.FreshFor().Seconds())))
		_, _ = w.Write(data) // an error means that the client has gone
	}
}

// serveRoot lists the paths that there are.
func (s *Server) serveRoot(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, metav1.RootPaths{Paths: s.paths()})
}

// paths are those that there are, in order.
func (s *Server) paths() []string {
	paths := []string{"/api", "/apis", "/flagz", "/healthz", "/livez", "/metrics", "/metrics/slis", "/openapi/v2", "/openapi/v3", "/readyz", "/statusz", "/version"}
	d := s.docs()
	for i := range d.Core.Items {
		for _, v := range d.Core.Items[i].Versions {
			paths = append(paths, "/api/"+v.Version)
		}
	}
	for i := range d.Groups.Groups {
		g := &d.Groups.Groups[i]
		paths = append(paths, "/apis/"+g.Name)
		for _, v := range g.Versions {
			paths = append(paths, "/apis/"+v.GroupVersion)
		}
	}
	if s.o.Tokens != nil && s.o.Tokens.Publishes() {
		paths = append(paths, "/.well-known/openid-configuration", authn.KeySetPath)
	}
	slices.Sort(paths)
	return paths
}
