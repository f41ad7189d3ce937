package nodeipam

import (
	"math"
	"net/netip"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count the shares that are given and given back, and show how many there are when somebody asks,
// under upstream's names.
type metrics struct {
	of atomic.Pointer[shares] // once the controller runs

	given, freed *prometheus.CounterVec
	usage, most  *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(reg prometheus.Registerer) *metrics {
	ofCIDR := []string{"clusterCIDR"}
	m := &metrics{
		given: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_ipam_controller_cidrset_cidrs_allocations_total", Help: "Shares of the pods' addresses that nodes were given.",
		}, ofCIDR),
		freed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "node_ipam_controller_cidrset_cidrs_releases_total", Help: "Shares of the pods' addresses that came free with their nodes.",
		}, ofCIDR),
		usage: prometheus.NewDesc("node_ipam_controller_cidrset_usage_cidrs", "Which part of the shares nodes have, from 0 to 1.", ofCIDR, nil),
		most:  prometheus.NewDesc("node_ipam_controller_cirdset_max_cidrs", "How many shares there are.", ofCIDR, nil), // upstream's spelling
	}
	reg.MustRegister(m, m.given, m.freed)
	return m
}

// count notes shares in c that were given or freed.
func (m *metrics) count(c *prometheus.CounterVec, cidrs []netip.Prefix, list []string) {
	for _, share := range list {
		if cidr := within(cidrs, share); cidr.IsValid() {
			c.WithLabelValues(cidr.String()).Inc()
		}
	}
}

// within is which of the CIDRs a share is of; invalid: of none.
func within(cidrs []netip.Prefix, share string) netip.Prefix {
	if p, err := netip.ParsePrefix(share); err == nil {
		for _, cidr := range cidrs {
			if cidr.Contains(p.Addr()) {
				return cidr
			}
		}
	}
	return netip.Prefix{}
}

// Describe is part of prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	out <- m.usage
	out <- m.most
}

// Collect is part of prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	s := m.of.Load()
	if s == nil {
		return
	}
	used := map[netip.Prefix]int{}
	for _, n := range s.nodesNow() {
		for _, share := range n.Spec.PodCIDRs {
			used[within(s.cidrs, share)]++
		}
	}
	for _, cidr := range s.cidrs {
		all := math.Pow(2, float64(s.o.bits(cidr)-cidr.Bits()))
		out <- prometheus.MustNewConstMetric(m.most, prometheus.GaugeValue, all, cidr.String())
		out <- prometheus.MustNewConstMetric(m.usage, prometheus.GaugeValue, float64(used[cidr])/all, cidr.String())
	}
}
