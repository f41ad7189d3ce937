package clusterip

import (
	"math"
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kemudi/kemudi/internal/api/networking"
)

// metrics count what is mended, and show how many addresses of services there are when somebody asks, under
// upstream's names: what its API server does, and so tells, is done here.
type metrics struct {
	of atomic.Pointer[reconciler] // once the controller runs

	wrong                *prometheus.CounterVec
	failed               prometheus.Counter
	allocated, available *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

// What may be wrong, as metrics name it.
const (
	leak       = "leak"       // taken for a Service that does not have it
	missing    = "repair"     // a Service has it, and it is not taken for that
	outOfRange = "outOfRange" // it is in no range of services
	twice      = "duplicate"  // several Services have it
	changed    = "invalid"    // it is taken for something that is no Service
)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		wrong: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_clusterip_repair_ip_errors_total", Help: "Addresses of services that were not as they should be, by what was wrong (leak, repair, outOfRange, duplicate, invalid).",
		}, []string{"type"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_clusterip_repair_reconcile_errors_total", Help: "Times that looking after addresses of services has failed.",
		}),
		allocated: prometheus.NewDesc("kube_apiserver_clusterip_allocator_allocated_ips", "Addresses of a range that are taken.", []string{"cidr"}, nil),
		available: prometheus.NewDesc("kube_apiserver_clusterip_allocator_available_ips", "Addresses of a range that are free.", []string{"cidr"}, nil),
	}
	reg.MustRegister(m, m.wrong, m.failed)
	return m
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.allocated
	out <- m.available
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	r := m.of.Load()
	if r == nil {
		return
	}
	taken := map[netip.Prefix]int{}
	for _, c := range r.ranges.List("", nil) {
		for _, p := range networking.ServiceRanges(c) {
			taken[p] = 0
		}
	}
	for _, a := range r.addresses.List("", nil) {
		ip, err := netip.ParseAddr(a.Name)
		if err != nil {
			continue
		}
		for p := range taken {
			if p.Contains(ip) {
				taken[p]++
			}
		}
	}
	for p, n := range taken {
		out <- prometheus.MustNewConstMetric(m.allocated, prometheus.GaugeValue, float64(n), p.String())
		out <- prometheus.MustNewConstMetric(m.available, prometheus.GaugeValue, max(0, sizeOf(p)-float64(n)), p.String())
	}
}

// sizeOf is how many addresses of a range services may have: the first is that of the network, and the last
// of IPv4 that of all.
func sizeOf(p netip.Prefix) float64 {
	all := math.Pow(2, float64(p.Addr().BitLen()-p.Bits()))
	if p.Addr().Is4() {
		return all - 2
	}
	return all - 1
}
