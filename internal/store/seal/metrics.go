package seal

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What is done to a value, as metrics name it.
const (
	fromStorage = "from_storage"
	toStorage   = "to_storage"
)

// Metrics have upstream's names. A nil one counts nothing.
type Metrics struct {
	server string   // hash of who counts
	hashes sync.Map // of the plugins' keys, by them

	duration   *prometheus.HistogramVec
	operations *prometheus.CounterVec
	misses     prometheus.Counter
	generation prometheus.Histogram
	failures   prometheus.Counter
	cacheSize  *prometheus.GaugeVec
	keyIDs     *prometheus.CounterVec
	keyIDsLast *prometheus.GaugeVec
}

// NewMetrics returns metrics that are registered. server names the process that counts.
func NewMetrics(reg *prometheus.Registry, server string) *Metrics {
	m := &Metrics{
		server: Hash(server),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_storage_transformation_duration_seconds",
			Help:    "Latencies in seconds of value transformation operations.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 25),
		}, []string{"transformation_type", "transformer_prefix"}),
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_storage_transformation_operations_total",
			Help: "Total number of transformations, by resource, direction, prefix of the stored value, and status, which is OK of those that succeeded.",
		}, []string{"resource", "transformation_type", "transformer_prefix", "status"}),
		misses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_storage_envelope_transformation_cache_misses_total",
			Help: "Total number of cache misses while accessing key decryption key(KEK).",
		}),
		generation: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "apiserver_storage_data_key_generation_duration_seconds",
			Help:    "Latencies in seconds of data encryption key(DEK) generation operations.",
			Buckets: prometheus.ExponentialBuckets(5e-6, 2, 14),
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_storage_data_key_generation_failures_total",
			Help: "Total number of failed data encryption key(DEK) generation operations.",
		}),
		cacheSize: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_envelope_encryption_dek_source_cache_size",
			Help: "Number of records in data encryption key (DEK) source cache.",
		}, []string{"provider_name"}),
		keyIDs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_envelope_encryption_key_id_hash_total",
			Help: "Number of times a keyID is used split by transformation type, provider, and apiserver identity.",
		}, []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}),
		keyIDsLast: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
			Help: "The last time in seconds when a keyID was used.",
		}, []string{"transformation_type", "provider_name", "key_id_hash", "apiserver_id_hash"}),
	}
	reg.MustRegister(m.duration, m.operations, m.misses, m.generation, m.failures, m.cacheSize, m.keyIDs, m.keyIDsLast)
	return m
}

// did counts what was done to a value.
func (c *Chain) did(what, prefix string, began time.Time, err error) {
	m := c.Metrics
	if m == nil {
		return
	}
	m.operations.WithLabelValues(c.Resource, what, prefix, code(err)).Inc()
	if err == nil {
		m.duration.WithLabelValues(what, prefix).Observe(time.Since(began).Seconds())
	}
}

// code is how metrics name an error.
func code(err error) string {
	var s interface{ GRPCStatus() *status.Status }
	switch {
	case err == nil:
		return codes.OK.String()
	case errors.As(err, &s):
		return s.GRPCStatus().Code().String()
	}
	return "unknown-non-grpc"
}

func (m *Metrics) missed() {
	if m != nil {
		m.misses.Inc()
	}
}

func (m *Metrics) generated(began time.Time) {
	if m != nil {
		m.generation.Observe(time.Since(began).Seconds())
	}
}

func (m *Metrics) cached(plugin string, n int) {
	if m != nil {
		m.cacheSize.WithLabelValues(plugin).Set(float64(n))
	}
}

// used counts the use of a plugin's key, of which there are few.
func (m *Metrics) used(what, plugin, keyID string) {
	if m == nil {
		return
	}
	hash := m.hash(keyID)
	m.keyIDs.WithLabelValues(what, plugin, hash, m.server).Inc()
	m.keyIDsLast.WithLabelValues(what, plugin, hash, m.server).SetToCurrentTime()
}

// hash is the hash of a plugin's key, which is the same for very many values.
func (m *Metrics) hash(keyID string) string {
	if h, ok := m.hashes.Load(keyID); ok {
		return h.(string)
	}
	h := Hash(keyID)
	m.hashes.Store(keyID, h)
	return h
}
