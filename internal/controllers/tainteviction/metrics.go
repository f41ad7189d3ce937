package tainteviction

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/controller"
)

// metrics are the metrics of evictions, under upstream's names.
type metrics struct{ *controller.Evictions }

func newMetrics(reg prometheus.Registerer) *metrics {
	return &metrics{controller.NewEvictions(reg, prometheus.CounterOpts{
		Name: "taint_eviction_controller_pod_deletions_total", Help: "Pods that went because of taints of their nodes.",
	}, prometheus.HistogramOpts{
		Name: "taint_eviction_controller_pod_deletion_duration_seconds", Help: "How long after their time pods went because of taints of their nodes.",
	})}
}
