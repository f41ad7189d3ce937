package replicaset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core"
)

// metrics are those of the choice of pods that go, under upstream's names.
type metrics struct{ ages prometheus.Histogram }

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{ages: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "replicaset_controller_sorting_deletion_age_ratio", Help: "How old ready pods that were chosen to go were, in ages of the youngest ready pod.",
		Buckets: prometheus.ExponentialBuckets(0.25, 2, 6),
	})}
	reg.MustRegister(m.ages)
	return m
}

// chosen notes the ages of those pods that are to go, the first n.
func (m *metrics) chosen(pods []*corev1.Pod, n int, now time.Time) {
	youngest := time.Duration(-1)
	for _, p := range pods {
		if age := now.Sub(p.CreationTimestamp.Time); core.PodReady(p) && (youngest < 0 || age < youngest) {
			youngest = age
		}
	}
	if youngest <= 0 {
		return // it is no measure
	}
	for _, p := range pods[:n] {
		if core.PodReady(p) {
			m.ages.Observe(float64(now.Sub(p.CreationTimestamp.Time)) / float64(youngest))
		}
	}
}
