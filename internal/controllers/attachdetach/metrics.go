package attachdetach

import "github.com/prometheus/client_golang/prometheus"

// metrics count volumes, once for each node, and what was taken from nodes that may have used it, under upstream's names.
type metrics struct {
	volumes *prometheus.GaugeVec
	forced  *prometheus.CounterVec
}

// states of the volumes that are counted.
const (
	wantedState   = "desired_state_of_world"
	attachedState = "actual_state_of_world"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		volumes: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "attachdetach_controller_total_volumes", Help: "Volumes that nodes need (desired_state_of_world) and that are attached to nodes, or about to be (actual_state_of_world), by the driver.",
		}, []string{"plugin_name", "state"}),
		forced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "attach_detach_controller_attachdetach_controller_forced_detaches", Help: "Volumes that were detached although their nodes may have used them, by the reason: timeout or out-of-service.",
		}, []string{"reason"}),
	}
	reg.MustRegister(m.volumes, m.forced)
	return m
}

// count brings the numbers of a volume's nodes up to date.
func (m *metrics) count(s *subject, was *memory, wanted, attached int) {
	plugin := "kubernetes.io/csi:" + s.driver
	m.volumes.WithLabelValues(plugin, wantedState).Add(float64(wanted - was.wanted))
	m.volumes.WithLabelValues(plugin, attachedState).Add(float64(attached - was.attached))
	was.wanted, was.attached = wanted, attached
}
