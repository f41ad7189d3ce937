package leader

import "github.com/prometheus/client_golang/prometheus"

// Metrics are those of all elections of a process, under upstream's names.
type Metrics struct {
	leads *prometheus.GaugeVec
}

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{leads: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "leader_election_master_status", Help: "Whether this process leads (1) or follows (0), by the name of the lease.",
	}, []string{"name"})}
	reg.MustRegister(m.leads)
	return m
}

// set says whether this process leads; m may be nil.
func (m *Metrics) set(name string, leads float64) {
	if m != nil {
		m.leads.WithLabelValues(name).Set(leads)
	}
}
