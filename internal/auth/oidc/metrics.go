package oidc

import (
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are upstream's.
type metrics struct {
	server  string // digest of its name
	latency *prometheus.HistogramVec
	fetch   *prometheus.GaugeVec
	reloads *prometheus.CounterVec
	reload  *prometheus.GaugeVec

	mu struct {
		sync.Mutex
		config string            // digest of what holds; empty: there is no file
		keys   map[string]string // digests of key sets, by those of issuers
	}
}

var (
	_ prometheus.Collector = (*metrics)(nil)

	configInfo = prometheus.NewDesc("apiserver_authentication_config_controller_last_config_info",
		"The configuration of authentication that holds, by its digest.", []string{"apiserver_id_hash", "hash"}, nil)
	keySetInfo = prometheus.NewDesc("apiserver_authentication_jwt_authenticator_jwks_fetch_last_key_set_info",
		"The key set that an issuer published when it was last asked, by its digest.", []string{"jwt_issuer_hash", "apiserver_id_hash", "hash"}, nil)
)

func hashOf(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text)))
}

func newMetrics(reg *prometheus.Registry, server string) *metrics {
	m := &metrics{
		server: hashOf(server),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_authentication_jwt_authenticator_latency_seconds",
			Help:    "Time to say whose a token of an issuer is.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"result", "jwt_issuer_hash"}),
		fetch: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_authentication_jwt_authenticator_jwks_fetch_last_timestamp_seconds",
			Help: "When the keys of an issuer were last fetched, and when that last failed, in seconds since 1970.",
		}, []string{"result", "jwt_issuer_hash", "apiserver_id_hash"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authentication_config_controller_automatic_reloads_total",
			Help: "How often the configuration of authentication was read again, by whether it could be used.",
		}, []string{"status", "apiserver_id_hash"}),
		reload: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
			Help: "When the configuration of authentication was last read again, by whether it could be used, in seconds since 1970.",
		}, []string{"status", "apiserver_id_hash"}),
	}
	m.mu.keys = map[string]string{}
	if reg != nil {
		reg.MustRegister(m.latency, m.fetch, m.reloads, m.reload, m)
	}
	return m
}

// result is the label of what has come of something.
func result(err error) string {
	if err != nil {
		return "failure"
	}
	return "success"
}

// authenticated counts a token of an issuer.
func (m *metrics) authenticated(issuer string, began time.Time, err error) {
	m.latency.WithLabelValues(result(err), hashOf(issuer)).Observe(time.Since(began).Seconds())
}

// fetched notes that keys were fetched, or could not be.
func (m *metrics) fetched(issuer string, set []byte, err error) {
	m.fetch.WithLabelValues(result(err), hashOf(issuer), m.server).SetToCurrentTime()
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mu.keys[hashOf(issuer)] = hashOf(string(set))
	}
}

// forget drops what is known of an issuer that is no more.
func (m *metrics) forget(issuer string) {
	for _, r := range []string{"success", "failure"} {
		m.fetch.DeleteLabelValues(r, hashOf(issuer), m.server)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.mu.keys, hashOf(issuer))
}

// reloaded counts that the file was read again; err says that it cannot be used.
func (m *metrics) reloaded(text string, err error) {
	m.reloads.WithLabelValues(result(err), m.server).Inc()
	m.reload.WithLabelValues(result(err), m.server).SetToCurrentTime()
	if err == nil {
		m.applied(text)
	}
}

// applied notes what holds.
func (m *metrics) applied(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.config = hashOf(text)
}

// Describe names the metrics whose labels are digests.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- configInfo
	ch <- keySetInfo
}

// Collect tells the digests.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.config != "" {
		ch <- prometheus.MustNewConstMetric(configInfo, prometheus.GaugeValue, 1, m.server, m.mu.config)
	}
	for issuer, keys := range m.mu.keys {
		ch <- prometheus.MustNewConstMetric(keySetInfo, prometheus.GaugeValue, 1, issuer, m.server, keys)
	}
}
