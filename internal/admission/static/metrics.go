package static

import (
	"crypto/sha256"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/obs"
)

// metrics are upstream's, of one plugin.
type metrics struct {
	plugin, server string // the server by its digest
	reloads        *prometheus.CounterVec
	last, info     *prometheus.GaugeVec
}

func newMetrics(reg *prometheus.Registry, plugin, server string) *metrics {
	return &metrics{
		plugin: plugin, server: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(server))),
		reloads: obs.Shared(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_manifest_admission_config_controller_automatic_reloads_total",
			Help: "How often files of admission were read again because they had changed, by what came of it.",
		}, []string{"status", "plugin", "apiserver_id_hash"})),
		last: obs.Shared(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_manifest_admission_config_controller_automatic_reload_last_timestamp_seconds",
			Help: "When that was last, in seconds since 1970.",
		}, []string{"status", "plugin", "apiserver_id_hash"})),
		info: obs.Shared(reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_manifest_admission_config_controller_last_config_info",
			Help: "The digest of the files of admission that are in force.",
		}, []string{"plugin", "apiserver_id_hash", "hash"})),
	}
}

// read tells that files were read again.
func (m *metrics) read(status string) {
	m.reloads.WithLabelValues(status, m.plugin, m.server).Inc()
	m.last.WithLabelValues(status, m.plugin, m.server).SetToCurrentTime()
}

// force tells which files are in force.
func (m *metrics) force(digest string) {
	m.info.DeletePartialMatch(prometheus.Labels{"plugin": m.plugin})
	m.info.WithLabelValues(m.plugin, m.server, digest).Set(1)
}
