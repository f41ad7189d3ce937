package nodelifecycle

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics count the nodes that pods are driven away from, and show how zones are when somebody asks, under
// upstream's names.
type metrics struct {
	nodes atomic.Pointer[func() []*corev1.Node] // all of them; nil: the controller does not run yet

	evictions          *prometheus.CounterVec
	took               prometheus.Histogram
	size, health, lost *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	ofZone := []string{"zone"}
	m := &metrics{
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_collector_evictions_total", Help: "Nodes that pods began to be driven away from, by zone.",
		}, ofZone),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "node_collector_update_node_health_duration_seconds", Help: "How long a look at a node took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		size:   prometheus.NewDesc("node_collector_zone_size", "Nodes of a zone that have reported.", ofZone, nil),
		health: prometheus.NewDesc("node_collector_zone_health", "How many percent of them are ready.", ofZone, nil),
		lost:   prometheus.NewDesc("node_collector_unhealthy_nodes_in_zone", "How many of them are not.", ofZone, nil),
	}
	reg.MustRegister(m, m.evictions, m.took)
	return m
}

// looked notes a look at a node that began at a time.
func (m *metrics) looked(began time.Time) { m.took.Observe(time.Since(began).Seconds()) }

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.size
	out <- m.health
	out <- m.lost
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	nodes := m.nodes.Load()
	if nodes == nil {
		return
	}
	for zone, h := range count((*nodes)()) {
		all := float64(h.ready + h.lost)
		out <- prometheus.MustNewConstMetric(m.size, prometheus.GaugeValue, all, zone)
		out <- prometheus.MustNewConstMetric(m.health, prometheus.GaugeValue, 100*float64(h.ready)/all, zone)
		out <- prometheus.MustNewConstMetric(m.lost, prometheus.GaugeValue, float64(h.lost), zone)
	}
}
