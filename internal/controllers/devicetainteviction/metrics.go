package devicetainteviction

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// counters are the metrics of evictions, under upstream's names.
type counters struct {
	evicted prometheus.Counter
	delay   prometheus.Histogram
}

func newCounters(reg prometheus.Registerer) *counters {
	m := &counters{
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "device_taint_eviction_controller_pod_deletions_total", Help: "Pods that went because of taints of their devices.",
		}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "device_taint_eviction_controller_pod_deletion_duration_seconds", Help: "How long after their time pods went because of taints of their devices.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240},
		}),
	}
	reg.MustRegister(m.evicted, m.delay)
	return m
}

// gone counts a pod that went, and had to from a time on.
func (m *counters) gone(due time.Time) {
	m.evicted.Inc()
	m.delay.Observe(time.Since(due).Seconds())
}
