package apiserver

import (
	"bytes"
	"io"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/resource"
)

// addFurther adds the metrics that are not of the answers to requests.
func (m *metrics) addFurther(reg prometheus.Registerer) {
	m.terminated = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_request_terminations_total",
		Help: "Requests that the server has ended to protect itself: there were too many, or their time was up.",
	}, []string{"verb", "group", "version", "resource", "subresource", "scope", "component", "code"})
	m.events = &watchEvents{}
	m.sent = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_request_body_size_bytes",
		Help:    "Size of the bodies of requests, in bytes.",
		Buckets: prometheus.LinearBuckets(50000, 100000, 31),
	}, []string{"group", "resource", "verb"})
	m.strangers = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "apiserver_tls_handshake_errors_total",
		Help: "Connections that ended before both sides had agreed on TLS.",
	})
	m.listed = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_watch_list_duration_seconds",
		Help:    "How long it took until watches that begin with what there is were told all of it, in seconds.",
		Buckets: []float64{0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300},
	}, []string{"group", "version", "resource", "scope"})
	m.storeTook, m.storeAsked, m.storeFailed = newStoreMetrics()
	reg.MustRegister(m.strangers, m.terminated, m.events, m.sent, m.listed, m.storeTook, m.storeAsked, m.storeFailed)
}

// announced measures a watch that has just told all that there was when it began.
func (m *metrics) announced(c *call.Call, began time.Time) {
	gvk := c.Resource.GVK
	m.listed.WithLabelValues(gvk.Group, gvk.Version, c.Resource.Def.Plural, scopeOf(c.Namespace, c.Name)).Observe(time.Since(began).Seconds())
}

// sized counts the body of a request.
func (s *Server) sized(st *state) {
	in := st.info
	if !in.Resource || len(st.body) == 0 || s.routes.Load().lookup(in.Group, in.Version, in.Plural) == nil {
		return
	}
	verb := strings.Replace(in.Verb, "deletecollection", "delete_collection", 1)
	s.metrics.sent.WithLabelValues(in.Group, in.Plural, verb).Observe(float64(len(st.body)))
}

// newStoreMetrics are upstream's metrics of the store, by what it was asked for and of which objects.
func newStoreMetrics() (took *prometheus.HistogramVec, asked, failed *prometheus.CounterVec) {
	labels := []string{"operation", "group", "resource"}
	took = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "etcd_request_duration_seconds",
		Help:    "How long the store took, in seconds.",
		Buckets: []float64{0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
	}, labels)
	asked = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_requests_total", Help: "What the store was asked for."}, labels)
	failed = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "etcd_request_errors_total", Help: "What the store was asked for in vain."}, labels)
	return took, asked, failed
}

// stored counts what the store was asked for about objects of a resource.
func (m *metrics) stored(operation string, d *resource.Def, took time.Duration, err error) {
	m.storeTook.WithLabelValues(operation, d.Group, d.Plural).Observe(took.Seconds())
	m.storeAsked.WithLabelValues(operation, d.Group, d.Plural).Inc()
	if err != nil {
		m.storeFailed.WithLabelValues(operation, d.Group, d.Plural).Inc()
	}
}

// serverLog takes what the library's server has to say, which tells of handshakes that failed in no other way.
type serverLog struct {
	io.Writer
	strangers prometheus.Counter
}

func (l serverLog) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("TLS handshake error from")) {
		l.strangers.Inc()
	}
	return l.Writer.Write(line)
}
