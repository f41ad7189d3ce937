package audit

import (
	"github.com/prometheus/client_golang/prometheus"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// metrics have upstream's names.
type metrics struct {
	events   prometheus.Counter
	rejected prometheus.Counter
	errors   *prometheus.CounterVec
	levels   map[auditv1.Level]prometheus.Counter
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		events: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_event_total",
			Help: "Counter of audit events generated and sent to the audit backend.",
		}),
		rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_audit_requests_rejected_total",
			Help: "Counter of apiserver requests rejected due to an error in audit logging backend.",
		}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_audit_error_total",
			Help: "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the error.",
		}, []string{"plugin"}),
		levels: map[auditv1.Level]prometheus.Counter{},
	}
	byLevel := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "apiserver_audit_level_total",
		Help: "Counter of policy levels for audit events (1 per request).",
	}, []string{"level"})
	if reg != nil {
		reg.MustRegister(m.events, m.rejected, m.errors, byLevel)
	}
	for _, level := range levels {
		m.levels[level] = byLevel.WithLabelValues(string(level))
	}
	return m
}
