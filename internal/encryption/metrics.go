package encryption

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/status"

	"github.com/kemudi/kemudi/internal/store/seal"
)

// metrics have upstream's names.
type metrics struct {
	server string // hash of who counts

	latency   *prometheus.HistogramVec
	statusIDs *prometheus.GaugeVec
	badIDs    *prometheus.CounterVec
	reloads   *prometheus.CounterVec
	reloadsAt *prometheus.GaugeVec
	config    *prometheus.GaugeVec
}

func newMetrics(reg *prometheus.Registry, server string) *metrics {
	m := &metrics{
		server: seal.Hash(server),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_envelope_encryption_kms_operations_latency_seconds",
			Help:    "KMS operation duration with gRPC error code status total.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20),
		}, []string{"provider_name", "method_name", "grpc_status_code"}),
		statusIDs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
			Help: "The last time in seconds when a keyID was returned by the Status RPC call.",
		}, []string{"provider_name", "key_id_hash", "apiserver_id_hash"}),
		badIDs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_envelope_encryption_invalid_key_id_from_status_total",
			Help: "Number of times an invalid keyID is returned by the Status RPC call split by error.",
		}, []string{"provider_name", "error"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_encryption_config_controller_automatic_reloads_total",
			Help: "Total number of reload successes and failures of encryption configuration split by apiserver identity.",
		}, []string{"status", "apiserver_id_hash"}),
		reloadsAt: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
			Help: "Timestamp of the last successful or failed automatic reload of encryption configuration split by apiserver identity.",
		}, []string{"status", "apiserver_id_hash"}),
		config: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_encryption_config_controller_last_config_info",
			Help: "Information about the last applied encryption configuration with hash as label, split by apiserver identity.",
		}, []string{"apiserver_id_hash", "hash"}),
	}
	reg.MustRegister(m.latency, m.statusIDs, m.badIDs, m.reloads, m.reloadsAt, m.config)
	return m
}

func (m *metrics) called(plugin, method string, began time.Time, err error) {
	m.latency.WithLabelValues(plugin, method, status.Code(err).String()).Observe(time.Since(began).Seconds())
}

func (m *metrics) sawKeyID(plugin, id string) {
	m.statusIDs.WithLabelValues(plugin, seal.Hash(id), m.server).SetToCurrentTime()
}

func (m *metrics) badKeyID(plugin, code string) { m.badIDs.WithLabelValues(plugin, code).Inc() }

// reloaded counts a configuration that was taken over, or not.
func (m *metrics) reloaded(err error, hash string) {
	how := "success"
	if err != nil {
		how = "failure"
	} else {
		m.config.Reset()
		m.config.WithLabelValues(m.server, hash).Set(1)
	}
	m.reloads.WithLabelValues(how, m.server).Inc()
	m.reloadsAt.WithLabelValues(how, m.server).SetToCurrentTime()
}
