package https

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are of requests, by the names that Kubernetes' client libraries have for them.
type metrics struct {
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
}

func newMetrics() *metrics {
	return &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "host", "method"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "Request latency in seconds, until the answer begins. Broken down by verb, and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0},
		}, []string{"verb", "host"}),
	}
}

// answered counts a request; res is nil if nobody answered.
func (m *metrics) answered(req *http.Request, res *http.Response, began time.Time) {
	code := "<error>"
	if res != nil {
		code = strconv.Itoa(res.StatusCode)
	}
	m.requests.WithLabelValues(code, req.URL.Host, req.Method).Inc()
	m.took.WithLabelValues(req.Method, req.URL.Host).Observe(time.Since(began).Seconds())
}

// Metrics are of the requests to all servers.
func (t *Transport) Metrics() []prometheus.Collector {
	return []prometheus.Collector{t.metrics.requests, t.metrics.took}
}
