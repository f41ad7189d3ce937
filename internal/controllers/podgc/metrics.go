package podgc

import "github.com/prometheus/client_golang/prometheus"

// cause is why a pod is deleted by force, as metrics tell it.
type cause string

// The causes.
const (
	terminated   cause = "terminated"     // it has finished, as too many have
	orphaned     cause = "orphaned"       // its node is gone
	lostForGood  cause = "out-of-service" // it was to end on a node that does not come back
	neverStarted cause = "unscheduled"    // it was to end before it had a node
)

// metrics count what is deleted by force, under upstream's names.
type metrics struct{ deleted, failed *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	labels := []string{"namespace", "reason"}
	m := &metrics{
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_gc_collector_force_delete_pods_total", Help: "Pods that were to be deleted by force: they have finished, or nobody is there to end them.",
		}, labels),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pod_gc_collector_force_delete_pod_errors_total", Help: "Times that this has failed.",
		}, labels),
	}
	reg.MustRegister(m.deleted, m.failed)
	return m
}

// count notes what has come of deleting a pod.
func (m *metrics) count(namespace string, why cause, err error) {
	m.deleted.WithLabelValues(namespace, string(why)).Inc()
	if err != nil {
		m.failed.WithLabelValues(namespace, string(why)).Inc()
	}
}
