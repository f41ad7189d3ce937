package attachdetach

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/obs"
)

// metrics count volumes, once for each node, and what was taken from nodes that may have used it, and say how long attachers take,
// under upstream's names.
type metrics struct {
	volumes    *prometheus.GaugeVec
	forced     *prometheus.CounterVec
	operations *prometheus.HistogramVec
}

// operations of attachers that are measured.
const (
	attaching = "volume_attach"
	detaching = "volume_detach"
)

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
		operations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "storage_operation_duration_seconds", Help: "Storage operation duration: from when a volume is asked for on a node, or is to leave it, until it is so, or the attacher has failed to",
			Buckets: obs.VolumeSeconds(),
		}, []string{"volume_plugin", "operation_name", "status", "migrated"}),
	}
	reg.MustRegister(m.volumes, m.forced, m.operations)
	return m
}

// count brings the numbers of a volume's nodes up to date.
func (m *metrics) count(s *subject, was *memory, wanted, attached int) {
	plugin := pluginOf(s.driver)
	m.volumes.WithLabelValues(plugin, wantedState).Add(float64(wanted - was.wanted))
	m.volumes.WithLabelValues(plugin, attachedState).Add(float64(attached - was.attached))
	was.wanted, was.attached = wanted, attached
}

// done and failed measure what an attacher has done about a volume of a driver, and what it says it could not do.
func (m *metrics) done(driver, operation string, since time.Time) {
	m.did(driver, operation, "success", since)
}

func (m *metrics) failed(driver, operation string, since time.Time) {
	m.did(driver, operation, "fail-unknown", since)
}

func (m *metrics) did(driver, operation, status string, since time.Time) {
	m.operations.WithLabelValues(pluginOf(driver), operation, status, "false").Observe(time.Since(since).Seconds())
}

// pluginOf is upstream's name of what sees to the volumes of a driver.
func pluginOf(driver string) string { return "kubernetes.io/csi:" + driver }
