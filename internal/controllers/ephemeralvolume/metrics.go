package ephemeralvolume

import "github.com/prometheus/client_golang/prometheus"

// metrics count the claims that are made, under upstream's names.
type metrics struct{ created, failed prometheus.Counter }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		created: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ephemeral_volume_controller_create_total", Help: "Claims that were asked for.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ephemeral_volume_controller_create_failures_total", Help: "Claims that were asked for and could not be made.",
		}),
	}
	reg.MustRegister(m.created, m.failed)
	return m
}
