package resourceclaim

import (
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/controller"
)

// metrics count what is made, and show what there is.
type metrics struct {
	creates *prometheus.CounterVec
	claims  atomic.Pointer[controller.Client[*resourcev1.ResourceClaim]] // once the controller runs
	there   *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

// newMetrics shows them in reg, if there is one and it does not show others already:
// controllers may be listed more often than they run.
func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		creates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dynamic_resource_allocation_resourceclaim_creates_total",
			Help: "ResourceClaims that were to be made from templates, by what became of it.",
		}, []string{"status", "admin_access"}),
		there: prometheus.NewDesc("dynamic_resource_allocation_resource_claims",
			"ResourceClaims there are; their source is empty if they were not made for a pod.", []string{"allocated", "admin_access", "source"}, nil),
	}
	if reg != nil && reg.Register(m.creates) == nil {
		reg.MustRegister(m)
	}
	return m
}

// made notes what became of making a claim.
func (m *metrics) made(s *resourcev1.ResourceClaimSpec, err error) {
	status := "success"
	if err != nil {
		status = "failure"
	}
	m.creates.WithLabelValues(status, strconv.FormatBool(administers(s))).Inc()
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) { out <- m.there }

// Collect is part of prometheus.Collector. Claims are counted when somebody asks.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	claims := m.claims.Load()
	if claims == nil {
		return
	}
	type label struct {
		allocated, admin bool
		source           string
	}
	counts := map[label]int{}
	for _, c := range claims.List(metav1.NamespaceAll, nil) {
		counts[label{c.Status.Allocation != nil, administers(&c.Spec), source(c)}]++
	}
	for l, n := range counts {
		out <- prometheus.MustNewConstMetric(m.there, prometheus.GaugeValue, float64(n), strconv.FormatBool(l.allocated), strconv.FormatBool(l.admin), l.source)
	}
}

// source is where a claim comes from.
func source(c *resourcev1.ResourceClaim) string {
	switch {
	case c.Annotations[resourcev1.PodResourceClaimAnnotation] != "":
		return "resource_claim_template"
	case c.Annotations[resourcev1.ExtendedResourceClaimAnnotation] == "true":
		return "extended_resource"
	}
	return ""
}

// administers reports whether a claim asks for administrative access.
func administers(s *resourcev1.ResourceClaimSpec) bool {
	for i := range s.Devices.Requests {
		if e := s.Devices.Requests[i].Exactly; e != nil && e.AdminAccess != nil && *e.AdminAccess {
			return true
		}
	}
	return false
}
