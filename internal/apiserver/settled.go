package apiserver

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kemudi/kemudi/internal/apiserver/refusal"
)

// settleTimeout is how long a request waits for a server that has just begun, before it is told to
// come again: a server is ready long before, unless its store does not answer.
const settleTimeout = 10 * time.Second

// withSettled has requests wait until what decides about them knows the state of the store, and kinds that
// others have defined are served: until then many a right would be refused, and much be not found. How the
// server is, it says at once.
func (s *Server) withSettled(next http.Handler) http.Handler {
	if s.o.Settled == nil {
		return next
	}
	health := http.NewServeMux()
	s.o.Health.Install(health)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.o.Settled:
			next.ServeHTTP(w, r)
			return
		default:
		}
		switch {
		case callerOf(r.Context()) != nil, slices.Contains(s.o.Early, r.URL.Path):
			next.ServeHTTP(w, r)
		case isHealth(r.URL.Path):
			health.ServeHTTP(w, r)
		case s.settles(r):
			next.ServeHTTP(w, r)
		default:
			s.writeError(w, r, refusal.Unsettled())
		}
	})
}

// settles waits until the server is settled. It is false if that takes too long for the request.
func (s *Server) settles(r *http.Request) bool {
	timer := time.NewTimer(settleTimeout)
	defer timer.Stop()
	select {
	case <-s.o.Settled:
		return true
	case <-timer.C:
	case <-r.Context().Done():
	}
	return false
}

// isHealth reports the paths of health, and of its single checks.
func isHealth(path string) bool {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return name == "livez" || name == "readyz" || name == "healthz"
}
