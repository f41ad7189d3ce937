package policy

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/admission/match"
	"github.com/kemudi/kemudi/internal/cel/measure"
	"github.com/kemudi/kemudi/internal/cel/request"
	"github.com/kemudi/kemudi/internal/obs"
)

// metrics count what policies of one kind say, as upstream does.
type metrics struct {
	kind       string // of match conditions: "validate" or "admit"
	checks     *prometheus.CounterVec
	took       *prometheus.HistogramVec
	conditions *match.Metrics
	all        *measure.Metrics
}

// buckets go from what the simplest expression takes to what one takes that may cost no more.
var buckets = []float64{0.0000005, 0.001, 0.01, 0.1, 1}

func validatingMetrics(reg *prometheus.Registry) *metrics {
	labels := []string{"policy", "policy_binding", "error_type", "enforcement_action"}
	return &metrics{
		kind: "validate", conditions: match.NewMetrics(reg), all: measure.New(reg),
		checks: obs.Shared(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_validating_admission_policy_check_total",
			Help: "Validations that were not fulfilled, or could not be evaluated, by policy, binding, what went wrong, and what followed.",
		}, labels)),
		took: obs.Shared(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_validating_admission_policy_check_duration_seconds",
			Help:    "How long the expressions of these validations took, in seconds.",
			Buckets: buckets,
		}, labels)),
	}
}

func mutatingMetrics(reg *prometheus.Registry) *metrics {
	labels := []string{"policy", "policy_binding", "error_type"}
	return &metrics{
		kind: "admit", conditions: match.NewMetrics(reg), all: measure.New(reg),
		checks: obs.Shared(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_mutating_admission_policy_check_total",
			Help: "Mutations that policies were asked for, by policy, binding and what went wrong.",
		}, labels)),
		took: obs.Shared(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_mutating_admission_policy_check_duration_seconds",
			Help:    "How long mutations took, in seconds.",
			Buckets: buckets,
		}, labels)),
	}
}

// checked counts one check that took so long; the labels after the binding are the metric's.
func (m *metrics) checked(took time.Duration, labels ...string) {
	m.checks.WithLabelValues(labels...).Inc()
	m.took.WithLabelValues(labels...).Observe(took.Seconds())
}

// label is that of a policy's match conditions.
func (m *metrics) label(policy, operation string) match.Label {
	return match.Label{Name: policy, Kind: "policy", Type: m.kind, Operation: operation}
}

// notCompiled is that an expression could not be compiled.
type notCompiled struct{ error }

// errorType is upstream's word for what went wrong; nil: nothing.
func errorType(err error) string {
	switch {
	case err == nil:
		return "no_error"
	case errors.As(err, new(notCompiled)):
		return "compile_error"
	case errors.Is(err, request.ErrBudget):
		return "out_of_budget"
	}
	return "invalid_error"
}
