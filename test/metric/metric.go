// Package metric reads single values of metrics. It is for tests only.
package metric

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Value is what the counter or gauge of a name says that has no labels but these, each written name=value.
// The test fails where there is none.
func Value(t testing.TB, reg prometheus.Gatherer, name string, labels ...string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			all := f.GetName() == name
			for _, l := range m.GetLabel() {
				all = all && slices.Contains(labels, l.GetName()+"="+l.GetValue())
			}
			if all {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no metric %s %v", name, labels)
	return 0
}
