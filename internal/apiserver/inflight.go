package apiserver

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/fair"
)

// withInflight bounds how many requests run at one time, reads and writes
// apart, and shares the places between users. What is long-running, and what
// administrators do, is not counted.
func (s *Server) withInflight(next http.Handler) http.Handler {
	limits := fair.Limits{Waiting: max(s.o.MaxWaiting, 0), Wait: s.o.RequestTimeout / 4}
	limits.Running = s.o.MaxReads
	reads := fair.New(limits)
	limits.Running = s.o.MaxWrites
	writes := fair.New(limits)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		if st.info.LongRunning() || isSystem(st.user) {
			next.ServeHTTP(w, r)
			return
		}
		limiter, kind := reads, "readOnly"
		if isWrite(r.Method) {
			limiter, kind = writes, "mutating"
		}
		release, ok := limiter.Acquire(r.Context(), st.user.GetName())
		if !ok {
			s.metrics.dropped.WithLabelValues(kind).Inc()
			w.Header().Set("Retry-After", "1")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
			return
		}
		gauge := s.metrics.inflight.WithLabelValues(kind)
		gauge.Inc()
		defer func() {
			gauge.Dec()
			release()
		}()
		next.ServeHTTP(w, r)
	})
}

func isWrite(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return true
}

// isSystem tells users that are never held back.
func isSystem(u user.Info) bool {
	return u != nil && slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup)
}
