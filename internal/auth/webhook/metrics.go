package webhook

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
)

// Metrics are those of all webhooks that say who may do what, by upstream's names.
type Metrics struct {
	evaluations  *prometheus.CounterVec
	duration     *prometheus.HistogramVec
	failOpen     *prometheus.CounterVec
	matchErrors  *prometheus.CounterVec
	exclusions   *prometheus.CounterVec
	matchSeconds *prometheus.HistogramVec
}

var _ authorizationcel.MatcherMetrics = (*Metrics)(nil)

// NewMetrics registers the metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_webhook_evaluations_total",
			Help: "Calls of webhooks that say who may do what, by what came of them: success, error, timeout, canceled.",
		}, []string{"name", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_authorization_webhook_duration_seconds",
			Help:    "Time that such calls took.",
			Buckets: prometheus.DefBuckets,
		}, []string{"name", "result"}),
		failOpen: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_webhook_evaluations_fail_open_total",
			Help: "Questions that were passed on to the next authorizer because a webhook failed.",
		}, []string{"name", "result"}),
		matchErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_match_condition_evaluation_errors_total",
			Help: "Questions of which a match condition could not be evaluated.",
		}, []string{"type", "name"}),
		exclusions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_authorization_match_condition_exclusions_total",
			Help: "Questions that a webhook was not asked because of its match conditions.",
		}, []string{"type", "name"}),
		matchSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_authorization_match_condition_evaluation_seconds",
			Help:    "Time to evaluate the match conditions of a webhook.",
			Buckets: []float64{0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25},
		}, []string{"type", "name"}),
	}
	reg.MustRegister(m.evaluations, m.duration, m.failOpen, m.matchErrors, m.exclusions, m.matchSeconds)
	return m
}

// RecordAuthorizationMatchConditionEvaluation tells how long the conditions took.
func (m *Metrics) RecordAuthorizationMatchConditionEvaluation(_ context.Context, kind, name string, took time.Duration) {
	m.matchSeconds.WithLabelValues(kind, name).Observe(took.Seconds())
}

// RecordAuthorizationMatchConditionEvaluationFailure tells that one could not be evaluated.
func (m *Metrics) RecordAuthorizationMatchConditionEvaluationFailure(_ context.Context, kind, name string) {
	m.matchErrors.WithLabelValues(kind, name).Inc()
}

// RecordAuthorizationMatchConditionExclusion tells that the webhook was not asked because of one.
func (m *Metrics) RecordAuthorizationMatchConditionExclusion(_ context.Context, kind, name string) {
	m.exclusions.WithLabelValues(kind, name).Inc()
}
