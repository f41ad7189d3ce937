package webhook

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/admission/match"
)

// shared are the metrics of both plugins.
type shared struct {
	duration                      *prometheus.HistogramVec
	requests, rejections, opening *prometheus.CounterVec
	conditions                    *match.Metrics
}

// metrics are those of one plugin.
type metrics struct {
	*shared
	kind string // the label type: "admit" or "validating"
}

// newMetrics counts in reg, if there is one.
func newMetrics(reg *prometheus.Registry) *shared {
	m := &shared{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_admission_webhook_admission_duration_seconds",
			Help:    "How long admission webhooks took, in seconds, by webhook, operation and kind of admission.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_webhook_request_total",
			Help: "Calls of admission webhooks, by webhook, operation, kind of admission and HTTP status (600 and more as 600).",
		}, []string{"name", "type", "operation", "code", "rejected"}),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_webhook_rejection_count",
			Help: "Writes refused by admission webhooks (error_type no_error), because one could not be called (calling_webhook_error), or by a fault in its answer or here (apiserver_internal_error).",
		}, []string{"name", "type", "operation", "error_type", "rejection_code"}),
		opening: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_admission_webhook_fail_open_count",
			Help: "Writes that went on although an admission webhook could not be called, as its failure policy says.",
		}, []string{"name", "type"}),
		conditions: match.NewMetrics(reg),
	}
	if reg != nil {
		reg.MustRegister(m.duration, m.requests, m.rejections, m.opening)
	}
	return m
}

func (s *shared) of(kind string) *metrics { return &metrics{s, kind} }

// outcome is how a call ended.
type outcome struct {
	code      int32 // of HTTP; 0: there was none
	took      time.Duration
	rejected  string // the error_type; empty: the write goes on
	uncounted bool   // as a rejection: the client has gone
}

func (m *metrics) called(name, operation string, o outcome) {
	code, rejected := strconv.Itoa(int(min(o.code, 600))), strconv.FormatBool(o.rejected != "")
	m.duration.WithLabelValues(name, m.kind, operation, rejected).Observe(o.took.Seconds())
	m.requests.WithLabelValues(name, m.kind, operation, code, rejected).Inc()
	if o.rejected != "" && !o.uncounted {
		m.rejections.WithLabelValues(name, m.kind, operation, o.rejected, code).Inc()
	}
}

func (m *metrics) failedOpen(name string) { m.opening.WithLabelValues(name, m.kind).Inc() }

func (m *metrics) evaluated(name, operation string, took time.Duration) {
	m.conditions.Evaluated(m.label(name, operation), took)
}

func (m *metrics) excluded(name, operation string) { m.conditions.Excluded(m.label(name, operation)) }

func (m *metrics) misevaluated(name, operation string) {
	m.conditions.Failed(m.label(name, operation))
}

func (m *metrics) label(name, operation string) match.Label {
	kind := m.kind
	if kind == "validating" {
		kind = "validate" // of match conditions upstream has another word
	}
	return match.Label{Name: name, Kind: "webhook", Type: kind, Operation: operation}
}
