package shutdown

import "github.com/prometheus/client_golang/prometheus"

// Metrics say when the machine's last shutdown began to wait for pods, and when it no longer did, by upstream's names.
type Metrics struct{ Began, Ended prometheus.Gauge }

// NewMetrics returns metrics that are registered.
func NewMetrics(reg prometheus.Registerer) Metrics {
	m := Metrics{
		Began: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_start_time_seconds", Help: "When the last shutdown of the machine began to end pods, in seconds since 1970.",
		}),
		Ended: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kubelet_graceful_shutdown_end_time_seconds", Help: "When the last shutdown of the machine had ended them, in seconds since 1970.",
		}),
	}
	reg.MustRegister(m.Began, m.Ended)
	return m
}
