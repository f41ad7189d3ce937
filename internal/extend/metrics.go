package extend

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/kemudi/kemudi/internal/custom"
)

// What a webhook can get wrong, as metrics have it.
const (
	notCalled = "conversion_webhook_call_failure"
	malformed = "conversion_webhook_malformed_response_failure"
	partial   = "conversion_webhook_partial_response_failure"
	invalid   = "conversion_webhook_invalid_converted_object_failure"
)

// Metrics count the conversions by webhooks, under upstream's names.
type Metrics struct {
	took, byKind *prometheus.HistogramVec
	asked        *prometheus.CounterVec
}

// NewMetrics counts in reg.
func NewMetrics(reg *prometheus.Registry) *Metrics {
	m := &Metrics{
		asked: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_conversion_webhook_request_total",
			Help: "Conversions by webhooks, by what has come of them.",
		}, []string{"result", "failure_type"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_conversion_webhook_duration_seconds",
			Help:    "How long webhooks took to convert objects, in seconds.",
			Buckets: []float64{0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 45, 60},
		}, []string{"result", "failure_type"}),
		byKind: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_crd_conversion_webhook_duration_seconds",
			Help:    "How long that took, by definition and versions.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, []string{"crd_name", "from_version", "to_version", "succeeded"}),
	}
	reg.MustRegister(m.asked, m.took, m.byKind)
	return m
}

// count counts a conversion of objects; nil counts nothing.
func (m *Metrics) count(crd *apiextensionsv1.CustomResourceDefinition, from *custom.Object, to string, c call) {
	if m == nil {
		return
	}
	result, took := "success", time.Since(c.began).Seconds()
	if c.wrong != "" {
		result = "failure"
	}
	m.asked.WithLabelValues(result, c.wrong).Inc()
	m.took.WithLabelValues(result, c.wrong).Observe(took)
	m.byKind.WithLabelValues(crd.Name, from.Version(), to, strconv.FormatBool(c.wrong == "")).Observe(took)
}

// call is a call of a webhook that has ended.
type call struct {
	began time.Time
	wrong string // empty: nothing
}
