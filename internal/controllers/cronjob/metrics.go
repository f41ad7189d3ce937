package cronjob

import "github.com/prometheus/client_golang/prometheus"

// metrics are those of CronJobs, under upstream's names.
type metrics struct{ skew prometheus.Histogram }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{skew: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "cronjob_controller_job_creation_skew_duration_seconds", Help: "How long after the time of the schedule a Job was made.",
		Buckets: prometheus.ExponentialBuckets(1, 2, 10),
	})}
	reg.MustRegister(m.skew)
	return m
}
