package server

import (
	"net/http"
	"strings"

	"github.com/kemudi/kemudi/internal/obs/tracing"
)

// traced makes spans of requests, where they are traced. Who asks has been let in, and is believed when it says that
// its trace is sent.
func (s *Server) traced(next http.Handler) http.Handler {
	if s.o.Tracing == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := s.o.Tracing.Serve(r, tracing.Request{Name: r.Method, Server: "kubelet", Believed: true})
		if span == nil {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		c := &coded{ResponseWriter: w, code: http.StatusOK}
		r = r.WithContext(ctx)
		defer func() {
			if _, path, ok := strings.Cut(r.Pattern, " "); ok { // the mux has noted what it serves
				span.SetName(path)
			} else if r.Pattern != "" {
				span.SetName(r.Pattern)
			}
			span.Answered(c.code, c.wrote)
			span.End()
		}()
		next.ServeHTTP(c, r)
	})
}

// coded notes the code and the size of an answer.
type coded struct {
	http.ResponseWriter
	code  int
	wrote int64
}

// WriteHeader begins the answer.
func (c *coded) WriteHeader(code int) {
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		c.code = code
	}
	c.ResponseWriter.WriteHeader(code)
}

// Write sends a part of the answer.
func (c *coded) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.wrote += int64(n)
	return n, err
}

// Unwrap gives http.ResponseController the writer below.
func (c *coded) Unwrap() http.ResponseWriter { return c.ResponseWriter }
