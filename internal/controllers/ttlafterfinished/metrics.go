package ttlafterfinished

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of finished jobs, under upstream's names.
type metrics struct{ late prometheus.Histogram }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{late: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "ttl_after_finished_controller_job_deletion_duration_seconds", Help: "How long after its time was up a job was deleted.",
		Buckets: prometheus.ExponentialBuckets(0.1, 2, 14),
	})}
	reg.MustRegister(m.late)
	return m
}
