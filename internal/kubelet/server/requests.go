package server

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// requests are the metrics of requests, which have upstream's names.
type requests struct {
	all      *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inflight *prometheus.GaugeVec

	webSockets *prometheus.CounterVec // by what their streams are for
}

func newRequests(reg prometheus.Registerer) *requests {
	labels := []string{"method", "path", "server_type", "long_running"}
	r := &requests{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_http_requests_total", Help: "Number of the http requests received since the server started",
		}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_http_requests_duration_seconds", Help: "Duration in seconds to serve http requests", Buckets: prometheus.DefBuckets,
		}, labels),
		inflight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kubelet_http_inflight_requests", Help: "Number of the inflight http requests",
		}, labels),
		webSockets: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_websocket_streaming_requests_total", Help: "Total number of WebSocket streaming requests (exec/attach/portforward) received by the kubelet.",
		}, []string{"subresource"}),
	}
	reg.MustRegister(r.all, r.took, r.inflight, r.webSockets)
	return r
}

// counted counts what mux serves. What it does not serve counts as one path: people may ask for any.
// Each is served through.
func (r *requests) counted(mux *http.ServeMux, through func(http.Handler) http.Handler) http.Handler {
	next := through(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path := "other"
		if _, pattern := mux.Handler(req); pattern != "" {
			path = root(req.URL.Path)
		}
		labels := []string{methodOf(req), path, "readwrite", strconv.FormatBool(lasting(path))}
		began, now := time.Now(), r.inflight.WithLabelValues(labels...)
		r.all.WithLabelValues(labels...).Inc()
		now.Inc()
		defer func() {
			now.Dec()
			r.took.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, req)
	})
}

// root is the first part of a path, and of metrics the second as well.
func root(path string) string {
	first, rest, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if second, _, _ := strings.Cut(rest, "/"); first == "metrics" && second != "" {
		return first + "/" + second
	}
	return first
}

// lasting reports whether requests for a path last as long as the client likes.
func lasting(path string) bool {
	switch path {
	case "exec", "attach", "portForward", "debug":
		return true
	}
	return false
}

// methodOf is the method of a request, if it is one that is served.
func methodOf(r *http.Request) string {
	switch r.Method {
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodHead:
		return r.Method
	}
	return "other"
}
