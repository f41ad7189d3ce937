package nodepool

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of the pools of a cluster, under the names of upstream's autoscaler.
type Metrics struct {
	waiting  prometheus.Gauge
	up, down prometheus.Counter
	failed   *prometheus.CounterVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "cluster_autoscaler_unschedulable_pods_count", Help: "Pods that fit nowhere.",
		}),
		up: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_autoscaler_scaled_up_nodes_total", Help: "Machines that were started for pods that fit nowhere.",
		}),
		down: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "cluster_autoscaler_scaled_down_nodes_total", Help: "Machines that were stopped since they had nothing to do.",
		}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cluster_autoscaler_failed_scale_ups_total", Help: "Machines that could not be started (cloudProviderError), or did not become nodes in time (timeout).",
		}, []string{"reason"}),
	}
	reg.MustRegister(m.waiting, m.up, m.down, m.failed)
	return m
}
