package podautoscaler

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

// counters are the metrics of autoscalers, under upstream's names.
type counters struct {
	reconciliations *prometheus.CounterVec
	reconciled      *prometheus.HistogramVec
	computations    *prometheus.CounterVec
	computed        *prometheus.HistogramVec
	autoscalers     prometheus.Gauge
}

func newCounters(reg prometheus.Registerer) *counters {
	m := &counters{
		reconciliations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "horizontal_pod_autoscaler_controller_reconciliations_total",
			Help: "Looks at autoscalers, by what was done (scale_up, scale_down, none) and whose error there was (spec, internal, none).",
		}, []string{"action", "error"}),
		reconciled: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds", Help: "How long a look at an autoscaler took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"action", "error"}),
		computations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "horizontal_pod_autoscaler_controller_metric_computation_total",
			Help: "Metrics that were asked for, by what they want done (scale_up, scale_down, none), whose error there was (spec, internal, none) and their type.",
		}, []string{"action", "error", "metric_type"}),
		computed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds", Help: "How long it took to ask for one metric.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"action", "error", "metric_type"}),
		autoscalers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers", Help: "Autoscalers that there are.",
		}),
	}
	reg.MustRegister(m.reconciliations, m.reconciled, m.computations, m.computed, m.autoscalers)
	return m
}

// looked counts a look that began then and took the target from so many pods to so many.
func (m *counters) looked(began time.Time, had, has int32, err error) {
	m.reconciliations.WithLabelValues(action(had, has), fault(err)).Inc()
	m.reconciled.WithLabelValues(action(had, has), fault(err)).Observe(time.Since(began).Seconds())
}

// asked counts a metric that was asked for.
func (m *counters) asked(began time.Time, of autoscalingv2.MetricSourceType, action, fault string) {
	m.computations.WithLabelValues(action, fault, string(of)).Inc()
	m.computed.WithLabelValues(action, fault, string(of)).Observe(time.Since(began).Seconds())
}

func action(had, wanted int32) string {
	switch {
	case wanted > had:
		return "scale_up"
	case wanted < had:
		return "scale_down"
	}
	return "none"
}

// specError is an error in what the autoscaler says itself, or its target.
type specError struct{ error }

func (e specError) Unwrap() error { return e.error }

// fault is where an error comes from.
func fault(err error) string {
	switch {
	case err == nil:
		return "none"
	case errors.As(err, new(specError)):
		return "spec"
	}
	return "internal"
}
