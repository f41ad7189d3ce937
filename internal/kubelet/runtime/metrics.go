package runtime

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are of how it is learned what becomes of containers, by upstream's names.
type Metrics struct {
	relists         prometheus.Histogram
	streams, broken prometheus.Counter
}

// NewMetrics returns metrics that are registered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		relists: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pleg_relist_duration_seconds", Help: "Duration in seconds for relisting pods: at the start, and when events may have been missed.", Buckets: prometheus.DefBuckets,
		}),
		streams: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_success_count", Help: "The number of times a streaming client was obtained to receive CRI Events.",
		}),
		broken: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_evented_pleg_connection_error_count", Help: "The number of errors encountered during the establishment of streaming connection with the CRI runtime.",
		}),
	}
	reg.MustRegister(m.relists, m.streams, m.broken)
	return m
}

func (m *Metrics) listed(began time.Time) {
	m.relists.Observe(time.Since(began).Seconds())
}

// followed counts an attempt to follow the runtime's events.
func (m *Metrics) followed(err error) {
	if err != nil {
		m.broken.Inc()
		return
	}
	m.streams.Inc()
}
