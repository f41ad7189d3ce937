package tainteviction

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of evictions, under upstream's names.
type metrics struct {
	evicted prometheus.Counter
	delay   prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "taint_eviction_controller_pod_deletions_total", Help: "Pods that went because of taints of their nodes.",
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "taint_eviction_controller_pod_deletion_duration_seconds", Help: "How long after their time pods went because of taints of their nodes.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
	}
	reg.MustRegister(m.evicted, m.delay)
	return m
}

// gone counts a pod that went, and had to from a time on.
func (m *metrics) gone(due time.Time) {
	m.evicted.Inc()
	m.delay.Observe(time.Since(due).Seconds())
}
