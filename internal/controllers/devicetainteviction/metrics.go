package devicetainteviction

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/controller"
)

// counters are the metrics of evictions, under upstream's names.
type counters struct{ *controller.Evictions }

func newCounters(reg prometheus.Registerer) *counters {
	return &counters{controller.NewEvictions(reg, prometheus.CounterOpts{
		Name: "device_taint_eviction_controller_pod_deletions_total", Help: "Pods that went because of taints of their devices.",
	}, prometheus.HistogramOpts{
		Name: "device_taint_eviction_controller_pod_deletion_duration_seconds", Help: "How long after their time pods went because of taints of their devices.",
	})}
}
