package match

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/obs"
)

// Metrics count what becomes of match conditions, of webhooks and of policies alike.
type Metrics struct {
	errors, exclusions *prometheus.CounterVec
	seconds            *prometheus.HistogramVec
}

// Label says whose match conditions: the name of the webhook or policy, "webhook" or "policy", "admit" or "validate".
type Label struct{ Name, Kind, Type, Operation string }

func (l Label) values() []string { return []string{l.Name, l.Kind, l.Type, l.Operation} }

// NewMetrics counts in reg, if there is one. All who ask for them with one registry share them.
func NewMetrics(reg *prometheus.Registry) *Metrics {
	labels := []string{"name", "kind", "type", "operation"}
	m := &Metrics{
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_match_condition_evaluation_errors_total",
			Help: "Match conditions of webhooks and policies that could not be evaluated.",
		}, labels),
		exclusions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_match_condition_exclusions_total",
			Help: "Writes that webhooks and policies were not asked about because of their match conditions.",
		}, labels),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_match_condition_evaluation_seconds",
			Help:    "How long the match conditions of webhooks and policies took, in seconds.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
		}, labels),
	}
	m.errors, m.exclusions, m.seconds = obs.Shared(reg, m.errors), obs.Shared(reg, m.exclusions), obs.Shared(reg, m.seconds)
	return m
}

// Evaluated counts one evaluation.
func (m *Metrics) Evaluated(l Label, took time.Duration) {
	m.seconds.WithLabelValues(l.values()...).Observe(took.Seconds())
}

// Excluded counts a write that is not meant.
func (m *Metrics) Excluded(l Label) { m.exclusions.WithLabelValues(l.values()...).Inc() }

// Failed counts a condition that could not be evaluated.
func (m *Metrics) Failed(l Label) { m.errors.WithLabelValues(l.values()...).Inc() }
