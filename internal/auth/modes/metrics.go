package modes

import (
	"crypto/sha256"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/auth/webhook"
)

// metrics are those of authorizers in general, by upstream's names.
type metrics struct {
	decisions *prometheus.CounterVec
	webhooks  func() *webhook.Metrics // registered when there is a webhook

	reloads *prometheus.CounterVec
	last    *prometheus.GaugeVec
	info    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_decisions_total",
			Help: "Questions that an authorizer has allowed or denied, by its type and name.",
		}, []string{"type", "name", "decision"}),
		webhooks: sync.OnceValue(func() *webhook.Metrics { return webhook.NewMetrics(reg) }),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_config_controller_automatic_reloads_total",
			Help: "How often --authorization-config was read again, by what came of it.",
		}, []string{"status", "apiserver_id_hash"}),
		last: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_authorization_config_controller_automatic_reload_last_timestamp_seconds",
			Help: "When it was last read again, by what came of it, in seconds since 1970.",
		}, []string{"status", "apiserver_id_hash"}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_authorization_config_controller_last_config_info",
			Help: "The digest of the configuration that is in force.",
		}, []string{"apiserver_id_hash", "hash"}),
	}
	reg.MustRegister(m.decisions, m.reloads, m.last, m.info)
	return m
}

// read tells that a configuration was read again.
func (m *metrics) read(status, id string) {
	m.reloads.WithLabelValues(status, digest([]byte(id))).Inc()
	m.last.WithLabelValues(status, digest([]byte(id))).SetToCurrentTime()
}

// force tells which configuration is in force.
func (m *metrics) force(id string, data []byte) {
	m.info.Reset()
	m.info.WithLabelValues(digest([]byte(id)), digest(data)).Set(1)
}

func digest(data []byte) string {
	if len(data) == 0 {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(data))
}
