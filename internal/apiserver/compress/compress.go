// Package compress makes large answers to HTTP requests smaller on their way.
package compress

import (
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// compressFrom is the size from which a list is compressed.
const compressFrom = 128 << 10

// Handler compresses large answers of next for those who accept it, where may
// allows it. Clients on the same machine do not get it: it costs more than it saves.
func Handler(next http.Handler, may func(r *http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") || isLocal(r) || !may(r) {
			next.ServeHTTP(w, r)
			return
		}
		z := &gzipWriter{ResponseWriter: w}
		defer z.close()
		next.ServeHTTP(z, r)
	})
}

// Compresses reports whether large answers written to w are compressed.
func Compresses(w http.ResponseWriter) bool {
	_, ok := w.(*gzipWriter)
	return ok
}

func isLocal(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.Equal(ip)
}

// gzipWriter compresses from the first write on if that is large.
type gzipWriter struct {
	http.ResponseWriter
	z    *gzip.Writer
	code int
	sent bool
}

var gzipWriters = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a constant
	}
	return z
}}

func (g *gzipWriter) WriteHeader(code int) { g.code = code }

func (g *gzipWriter) Write(b []byte) (int, error) {
	if !g.sent {
		g.sent = true
		if len(b) >= compressFrom && g.code < 300 && g.Header().Get("Content-Encoding") == "" {
			g.Header().Del("Content-Length")
			g.Header().Set("Content-Encoding", "gzip")
			g.z = gzipWriters.Get().(*gzip.Writer)
			g.z.Reset(g.ResponseWriter)
		}
		g.Header().Add("Vary", "Accept-Encoding")
		if g.code != 0 {
			g.ResponseWriter.WriteHeader(g.code)
		}
	}
	if g.z != nil {
		return g.z.Write(b)
	}
	return g.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController the writer below.
func (g *gzipWriter) Unwrap() http.ResponseWriter { return g.ResponseWriter }

func (g *gzipWriter) close() {
	if g.z != nil {
		_ = g.z.Close() // an error means that the client has gone
		gzipWriters.Put(g.z)
		return
	}
	if !g.sent && g.code != 0 {
		g.ResponseWriter.WriteHeader(g.code)
	}
}
