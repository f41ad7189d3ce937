package pin

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/kubelet/numa"
)

// Metrics of what is aligned. The names are upstream's.
type Metrics struct {
	requests, errors prometheus.Counter
	duration         prometheus.Histogram
	alignments       *numa.Alignments
}

// NewMetrics returns metrics that say that nothing has been asked for yet.
func NewMetrics(reg *prometheus.Registry, alignments *numa.Alignments) *Metrics {
	m := &Metrics{
		requests: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_requests_total", Help: "The number of admission requests where resources have to be aligned.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_topology_manager_admission_errors_total", Help: "The number of admission request failures where resources could not be aligned.",
		}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_topology_manager_admission_duration_ms", Help: "Duration in milliseconds to serve a pod admission request.",
			Buckets: prometheus.ExponentialBuckets(0.05, 2, 15),
		}),
		alignments: alignments,
	}
	reg.MustRegister(m.requests, m.errors, m.duration)
	return m
}

func (m *Metrics) admitted(began time.Time, err error) {
	m.requests.Inc()
	if err == errAffinity {
		m.errors.Inc()
	}
	m.duration.Observe(float64(time.Since(began)) / float64(time.Millisecond))
}

// aligned counts what was to be aligned, where that is promised to whoever is taken on.
func (m *Metrics) aligned(p *Pins, admit bool) {
	if p.Align.Aligns() {
		m.alignments.Node(p.Scope, admit)
	}
}
