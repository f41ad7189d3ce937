package endpointslicemirroring

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metrics count what is done to slices, and show what there is when somebody asks, under upstream's names.
type metrics struct {
	of atomic.Pointer[reconciler] // once the controller runs

	changes                          *prometheus.CounterVec
	added, updated, removed, skipped prometheus.Histogram
	took                             prometheus.Histogram

	endpoints, slices, fewest *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	many := prometheus.ExponentialBuckets(2, 2, 15)
	m := &metrics{
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "endpoint_slice_mirroring_controller_changes", Help: "Slices that were written, by the operation (create, update, delete).",
		}, []string{"operation"}),
		added: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_mirroring_controller_endpoints_added_per_sync", Help: "Endpoints that a look at Endpoints added.", Buckets: many,
		}),
		updated: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_mirroring_controller_endpoints_updated_per_sync", Help: "Endpoints that a look at Endpoints changed.", Buckets: many,
		}),
		removed: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_mirroring_controller_endpoints_removed_per_sync", Help: "Endpoints that a look at Endpoints removed.", Buckets: many,
		}),
		skipped: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_mirroring_controller_addresses_skipped_per_sync", Help: "Addresses of Endpoints that are none, or too many.", Buckets: many,
		}),
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "endpoint_slice_mirroring_controller_endpoints_sync_duration", Help: "How long a look at Endpoints took, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		endpoints: prometheus.NewDesc("endpoint_slice_mirroring_controller_endpoints_desired", "Endpoints that are mirrored.", nil, nil),
		slices:    prometheus.NewDesc("endpoint_slice_mirroring_controller_num_endpoint_slices", "Slices that this controller has made.", nil, nil),
		fewest:    prometheus.NewDesc("endpoint_slice_mirroring_controller_desired_endpoint_slices", "In how few slices the endpoints would fit.", nil, nil),
	}
	reg.MustRegister(m, m.changes, m.added, m.updated, m.removed, m.skipped, m.took)
	return m
}

// looked notes a look at Endpoints that began at a time.
func (m *metrics) looked(began time.Time) { m.took.Observe(time.Since(began).Seconds()) }

// planned notes what a look is to change of the endpoints in slices.
func (m *metrics) planned(wanted, existing []*discoveryv1.EndpointSlice) {
	has := map[string]*discoveryv1.Endpoint{}
	for _, s := range existing {
		for i := range s.Endpoints {
			has[s.Endpoints[i].Addresses[0]+" "+portsOf(s)] = &s.Endpoints[i]
		}
	}
	added, updated := 0, 0
	for _, s := range wanted {
		for i := range s.Endpoints {
			key := s.Endpoints[i].Addresses[0] + " " + portsOf(s)
			switch before := has[key]; {
			case before == nil:
				added++
			case !equality.Semantic.DeepEqual(before, &s.Endpoints[i]):
				updated++
			}
			delete(has, key)
		}
	}
	m.added.Observe(float64(added))
	m.updated.Observe(float64(updated))
	m.removed.Observe(float64(len(has)))
}

// wrote notes a write of a slice, and hands on its error.
func (m *metrics) wrote(operation string, err error) error {
	if err == nil {
		m.changes.WithLabelValues(operation).Inc()
	}
	return err
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.endpoints, m.slices, m.fewest} {
		out <- d
	}
}

// Collect is part of prometheus.Collector. One slice holds all that can be in one.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	r := m.of.Load()
	if r == nil {
		return
	}
	endpoints, made := 0, 0
	for _, s := range r.slices.List(metav1.NamespaceAll, nil) {
		if s.Labels[discoveryv1.LabelManagedBy] == managedBy {
			made++
			endpoints += len(s.Endpoints)
		}
	}
	for d, n := range map[*prometheus.Desc]int{m.endpoints: endpoints, m.slices: made, m.fewest: made} {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n))
	}
}
