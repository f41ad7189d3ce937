package statefulset

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/kemudi/kemudi/internal/controller"
)

// metrics show how many pods of sets are unavailable, and may be while these roll out, counted when somebody asks. They have
// upstream's names and, as people look at single sets, its labels.
type metrics struct {
	sets atomic.Pointer[controller.Client[*appsv1.StatefulSet]] // once the controller runs

	most, unavailable *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	ofSet := []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}
	m := &metrics{
		most:        prometheus.NewDesc("statefulset_controller_statefulset_max_unavailable", "Pods of a StatefulSet that may be unavailable while it rolls out.", ofSet, nil),
		unavailable: prometheus.NewDesc("statefulset_controller_statefulset_unavailable_replicas", "Pods of a StatefulSet that are unavailable.", ofSet, nil),
	}
	reg.MustRegister(m)
	return m
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.most
	out <- m.unavailable
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	sets := m.sets.Load()
	if sets == nil {
		return
	}
	for _, set := range sets.List("", nil) {
		if set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
			continue
		}
		show := func(d *prometheus.Desc, n int) {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), set.Namespace, set.Name, string(set.Spec.PodManagementPolicy))
		}
		v := view{set: set}
		show(m.most, v.maxUnavailable())
		show(m.unavailable, max(0, replicas(set)-int(set.Status.AvailableReplicas)))
	}
}
