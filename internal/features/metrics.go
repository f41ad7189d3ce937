package features

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tell of the features when they are asked.
type Metrics struct{}

var (
	_ prometheus.Collector = Metrics{}

	enabled = prometheus.NewDesc("kubernetes_feature_enabled", "Whether a feature of upstream's is on by default, by its stage.", []string{"name", "stage"}, nil)
)

// Describe names the metric.
func (Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- enabled }

// Collect tells of each feature.
func (Metrics) Collect(ch chan<- prometheus.Metric) {
	for i := range groups {
		value := 0.0
		if groups[i].on {
			value = 1
		}
		for name := range strings.FieldsSeq(groups[i].names) {
			ch <- prometheus.MustNewConstMetric(enabled, prometheus.GaugeValue, value, name, string(groups[i].stage))
		}
	}
}
