package attachdetach

import "github.com/prometheus/client_golang/prometheus"

// metrics count what was taken from nodes that may have used it, under upstream's name.
type metrics struct{ forced *prometheus.CounterVec }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{forced: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "attach_detach_controller_attachdetach_controller_forced_detaches", Help: "Volumes that were detached although their nodes may have used them, by the reason: timeout or out-of-service.",
	}, []string{"reason"})}
	reg.MustRegister(m.forced)
	return m
}
