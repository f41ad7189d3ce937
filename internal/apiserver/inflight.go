package apiserver

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/kemudi/kemudi/internal/apiserver/fair"
)

// What a request takes of memory while it runs, at least.
const (
	memoryOfList  = 3 << 20 // two buffers, and what is on its way to a slow client
	memoryOfOther = 64 << 10
	// A body is there as bytes, as an object, and as other bytes on their way to the disk.
	memoryPerByte = 8
)

// withInflight bounds how many requests run at one time, reads and writes
// apart, and shares the places between users. What is long-running, and what
// administrators do, is not counted; but nobody may use up the memory.
func (s *Server) withInflight(next http.Handler) http.Handler {
	limits := fair.Limits{Waiting: max(s.o.MaxWaiting, 0), Wait: s.o.RequestTimeout / 4}
	limits.Running = s.o.MaxReads
	reads := fair.New(limits)
	limits.Running = s.o.MaxWrites
	writes := fair.New(limits)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		st := stateOf(r)
		give, ok := s.memory.Take(s.memoryFor(r))
		switch {
		case !ok && r.Method != http.MethodDelete: // what is deleted makes room
			s.tooMany(w, r)
			return
		case ok && st.info.LongRunning():
			give() // what it keeps is soon measured
		case ok:
			defer give()
		}
		if st.info.LongRunning() || isSystem(st.user) {
			next.ServeHTTP(w, r)
			return
		}
		limiter, kind := reads, inflightKind(r)
		if isWrite(r.Method) {
			limiter = writes
		}
		release, ok := limiter.Acquire(r.Context(), st.user.GetName())
		if !ok {
			s.tooMany(w, r)
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

// tooMany refuses a request that there is no room for.
func (s *Server) tooMany(w http.ResponseWriter, r *http.Request) {
	s.metrics.dropped.WithLabelValues(inflightKind(r)).Inc()
	w.Header().Set("Retry-After", "1")
	http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
}

// memoryFor is about how many bytes it takes to answer a request.
func (s *Server) memoryFor(r *http.Request) int64 {
	switch in := stateOf(r).info; {
	case !in.Resource:
		return 0 // health, above all, is told for as long as possible
	case in.Verb == "list":
		return memoryOfList
	case r.ContentLength < 0:
		return memoryOfOther + memoryPerByte*s.o.MaxBody/4 // few are that large
	default:
		return memoryOfOther + memoryPerByte*min(r.ContentLength, s.o.MaxBody)
	}
}

func inflightKind(r *http.Request) string {
	if isWrite(r.Method) {
		return "mutating"
	}
	return "readOnly"
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
