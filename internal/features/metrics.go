package features

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics tell of the features when they are asked: of those that heed their gates whether they are on, of the others whether
// they are by default.
type Metrics struct{ Gates Gates }

var (
	_ prometheus.Collector = Metrics{}

	enabled = prometheus.NewDesc("kubernetes_feature_enabled", "Whether a feature of upstream's is on, by its stage.", []string{"name", "stage"}, nil)
)

// Describe names the metric.
func (Metrics) Describe(ch chan<- *prometheus.Desc) { ch <- enabled }

// Collect tells of each feature.
func (m Metrics) Collect(ch chan<- prometheus.Metric) {
	for i := range groups {
		for name := range strings.FieldsSeq(groups[i].names) {
			on, value := groups[i].on, 0.0
			if slices.Contains(heeded, name) {
				on = m.Gates.On(name)
			}
			if on {
				value = 1
			}
			ch <- prometheus.MustNewConstMetric(enabled, prometheus.GaugeValue, value, name, string(groups[i].stage))
		}
	}
}
