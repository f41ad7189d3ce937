package egress

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are upstream's of connections by a proxy.
type Metrics struct {
	starts, failures *prometheus.CounterVec
	took             *prometheus.HistogramVec
}

// NewMetrics counts in reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		starts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_egress_dialer_dial_start_total",
			Help: "Connections that the egress proxy was to make, by how it is spoken with.",
		}, []string{"protocol", "transport"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_egress_dialer_dial_failure_count",
			Help: "Connections that could not be made, because the proxy could not be reached (connect) or did not make them (proxy).",
		}, []string{"protocol", "transport", "stage"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_egress_dialer_dial_duration_seconds",
			Help:    "How long it took to get connections by the egress proxy, in seconds.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 2.5, 12.5},
		}, []string{"protocol", "transport"}),
	}
	reg.MustRegister(m.starts, m.failures, m.took)
	return m
}

// labels are upstream's words for how the proxy is spoken with.
func (p *Proxy) labels() []string {
	switch {
	case p.grpc:
		return []string{"grpc", "uds"}
	case p.network == "unix":
		return []string{"http_connect", "uds"}
	}
	return []string{"http_connect", "tcp"}
}

func (m *Metrics) begun(p *Proxy) {
	if m != nil {
		m.starts.WithLabelValues(p.labels()...).Inc()
	}
}

func (m *Metrics) failed(p *Proxy, stage string) {
	if m != nil {
		m.failures.WithLabelValues(append(p.labels(), stage)...).Inc()
	}
}

func (m *Metrics) connected(p *Proxy, took time.Duration) {
	if m != nil {
		m.took.WithLabelValues(p.labels()...).Observe(took.Seconds())
	}
}
