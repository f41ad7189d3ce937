package seal

import (
	"errors"
	"sync/atomic"
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
	server string // hash of who counts

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

// series are those of what was done to values of one form, in one direction, and has succeeded: they are looked up by their labels when
// another form comes than the last time, and not for each value.
type series struct {
	of         string // prefix, or key of a plugin
	operations prometheus.Counter
	duration   prometheus.Observer
	last       prometheus.Gauge
}

// recent are the series that were counted in last, by direction.
type recent struct{ from, to atomic.Pointer[series] }

// of returns the series of what, of a direction; found looks them up.
func (r *recent) of(direction, what string, found func() *series) *series {
	at := &r.from
	if direction == toStorage {
		at = &r.to
	}
	s := at.Load()
	if s == nil || s.of != what {
		s = found()
		at.Store(s)
	}
	return s
}

// did counts what was done to a value.
func (c *Chain) did(what, prefix string, began time.Time, err error) {
	m := c.Metrics
	if m == nil {
		return
	}
	if err != nil {
		m.operations.WithLabelValues(c.Resource, what, prefix, code(err)).Inc()
		return
	}
	s := c.recent.of(what, prefix, func() *series {
		return &series{of: prefix, operations: m.operations.WithLabelValues(c.Resource, what, prefix, code(nil)), duration: m.duration.WithLabelValues(what, prefix)}
	})
	s.operations.Inc()
	s.duration.Observe(time.Since(began).Seconds())
}

// code is how metrics name an error.
func code(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
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
func (e *Envelope) used(what, keyID string) {
	m := e.metrics
	if m == nil {
		return
	}
	s := e.recent.of(what, keyID, func() *series {
		hash := Hash(keyID)
		return &series{of: keyID, operations: m.keyIDs.WithLabelValues(what, e.name, hash, m.server), last: m.keyIDsLast.WithLabelValues(what, e.name, hash, m.server)}
	})
	s.operations.Inc()
	s.last.SetToCurrentTime()
}
