package endpointslice

import (
	"cmp"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/discovery"
)

// metrics count what is done to slices, and show what there is when somebody asks, under upstream's names.
type metrics struct {
	of atomic.Pointer[reconciler] // once the controller runs

	syncs, changes *prometheus.CounterVec
	added, removed prometheus.Histogram
	changed        *prometheus.HistogramVec

	endpoints, slices, fewest, distributed *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	many := prometheus.ExponentialBuckets(2, 2, 15)
	m := &metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "endpoint_slice_controller_syncs", Help: "Looks at services, by the result (success, stale, error).",
		}, []string{"result"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "endpoint_slice_controller_changes", Help: "Slices that were written, by the operation (create, update, delete).",
		}, []string{"operation"}),
		added: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_controller_endpoints_added_per_sync", Help: "Endpoints that a look at a service added.", Buckets: many,
		}),
		removed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_controller_endpoints_removed_per_sync", Help: "Endpoints that a look at a service removed.", Buckets: many,
		}),
		changed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "endpoint_slice_controller_endpointslices_changed_per_sync",
			Help: "Slices that a look at a service changed, by whether hints follow the zones (Auto, Disabled) and how its traffic is distributed.",
		}, []string{"topology", "traffic_distribution"}),
		endpoints:   prometheus.NewDesc("endpoint_slice_controller_endpoints_desired", "Endpoints of services.", nil, nil),
		slices:      prometheus.NewDesc("endpoint_slice_controller_num_endpoint_slices", "Slices that this controller has made.", nil, nil),
		fewest:      prometheus.NewDesc("endpoint_slice_controller_desired_endpoint_slices", "In how few slices the endpoints would fit.", nil, nil),
		distributed: prometheus.NewDesc("endpoint_slice_controller_services_count_by_traffic_distribution", "Services that say how their traffic is distributed, by that.", []string{"traffic_distribution"}, nil),
	}
	reg.MustRegister(m, m.syncs, m.changes, m.added, m.removed, m.changed)
	return m
}

// planned notes what a look at a service is to change.
func (m *metrics) planned(svc *corev1.Service, c *changes) {
	m.added.Observe(float64(c.added))
	m.removed.Observe(float64(c.removed))
	topology := "Disabled"
	if core.TopologyModeAuto(svc) {
		topology = "Auto"
	}
	m.changed.WithLabelValues(topology, ptr.Deref(svc.Spec.TrafficDistribution, "")).Observe(float64(len(c.create) + len(c.update) + len(c.delete)))
}

// wrote notes a write of a slice, and hands on its error.
func (m *metrics) wrote(operation string, err error) error {
	if err == nil {
		m.changes.WithLabelValues(operation).Inc()
	}
	return err
}

// looked notes what has come of a look at a service.
func (m *metrics) looked(err error) {
	result := "success"
	switch {
	case apierrors.IsConflict(err):
		result = "stale"
	case err != nil:
		result = "error"
	}
	m.syncs.WithLabelValues(result).Inc()
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.endpoints, m.slices, m.fewest, m.distributed} {
		out <- d
	}
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	r := m.of.Load()
	if r == nil {
		return
	}
	type together struct{ namespace, service, ports string } // what can be in one slice
	endpoints, made, fewest, in := 0, 0, 0, map[together]int{}
	for _, s := range r.slices.List(metav1.NamespaceAll, nil) {
		if s.Labels[discoveryv1.LabelManagedBy] != discovery.ManagedByController {
			continue
		}
		made++
		endpoints += len(s.Endpoints)
		in[together{s.Namespace, s.Labels[discoveryv1.LabelServiceName], portsKey(s.AddressType, s.Ports)}] += len(s.Endpoints)
	}
	for _, n := range in {
		fewest += (cmp.Or(n, 1) + r.limit - 1) / r.limit
	}
	gauge := func(d *prometheus.Desc, n int, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), labels...)
	}
	gauge(m.endpoints, endpoints)
	gauge(m.slices, made)
	gauge(m.fewest, fewest)
	distributed := map[string]int{}
	for _, svc := range r.services.List(metav1.NamespaceAll, nil) {
		if how := svc.Spec.TrafficDistribution; how != nil && len(svc.Spec.Selector) > 0 {
			distributed[*how]++
		}
	}
	for how, n := range distributed {
		gauge(m.distributed, n, how)
	}
}
