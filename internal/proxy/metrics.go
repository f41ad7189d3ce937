package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
)

// familyNames are what the label ip_family says, in the order of families.
var familyNames = [len(families)]string{"IPv4", "IPv6"}

// metrics has the names and labels of kube-proxy where it is the same thing. What is of one family has the label ip_family;
// changes of objects and questions about health are of both.
type metrics struct {
	sync, full, partial *prometheus.HistogramVec
	programming         *prometheus.HistogramVec
	lastSync, lastQueue *prometheus.GaugeVec
	failures            *prometheus.CounterVec
	serviceChanges      prometheus.Counter
	endpointChanges     prometheus.Counter
	staleTook           *prometheus.HistogramVec
	staleFlows          *prometheus.CounterVec
	overwritten         prometheus.Counter
	noLocal             *prometheus.GaugeVec
	listeners           *prometheus.GaugeVec
	healthz, livez      *prometheus.CounterVec
}

// newMetrics registers them. pending says how many changes of a kind are not taken in yet.
func newMetrics(reg prometheus.Registerer, pending func(kind string) int) *metrics {
	// From a tenth of a millisecond, for one endpoint, to many seconds.
	buckets := prometheus.ExponentialBuckets(0.0001, 2, 18)
	histogram := func(name, help string, buckets []float64) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, []string{"ip_family"})
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	waiting := func(kind, name, help string) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(pending(kind)) })
	}
	m := &metrics{
		sync:    histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Time from taking in changes to having the rules in force, in seconds.", buckets),
		full:    histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "The same, where all rules were written anew.", buckets),
		partial: histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "The same, where only what had changed was written.", buckets),
		programming: histogram("kubeproxy_network_programming_duration_seconds",
			"Time from a change of a service or pod to having the rules for it in force, in seconds.", prometheus.ExponentialBuckets(0.001, 2, 20)),
		lastSync:        gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When rules were last found or brought in order, in seconds since 1970.", "ip_family"),
		lastQueue:       gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When a change of the rules was last asked for, in seconds since 1970.", "ip_family"),
		failures:        counters("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Transactions that the kernel refused.", "ip_family"),
		serviceChanges:  counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services taken in."),
		endpointChanges: counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices taken in."),
		staleTook:       histogram("kubeproxy_conntrack_reconciler_sync_duration_seconds", "Time to look for UDP flows whose endpoint had gone, in seconds.", buckets),
		staleFlows:      counters("kubeproxy_conntrack_reconciler_deleted_entries_total", "UDP flows ended because their endpoint had gone.", "ip_family"),
		overwritten:     counter("kemudi_proxy_rules_overwritten_total", "Times that another program changed our tables, and all rules were written anew."),
		noLocal: gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Ports of services that must stay on the node by their traffic policy, and whose endpoints are all elsewhere.", "traffic_policy", "ip_family"),
		listeners: gauge("kubeproxy_localhost_nodeport_listeners", "Node ports at ::1 that the process listens at.", "ip_family"),
		healthz:   counters("kubeproxy_proxy_healthz_total", "Answers of /healthz, by HTTP status code.", "code"),
		livez:     counters("kubeproxy_proxy_livez_total", "Answers of /livez, by HTTP status code.", "code"),
	}
	for _, family := range familyNames { // rates of what has not happened yet are zero, and not unknown
		m.failures.WithLabelValues(family)
		m.staleFlows.WithLabelValues(family)
	}
	reg.MustRegister(m.noLocal, m.listeners, m.sync, m.full, m.partial, m.programming, m.lastSync, m.lastQueue, m.failures, m.serviceChanges,
		m.endpointChanges, m.staleTook, m.staleFlows, m.overwritten, m.healthz, m.livez,
		waiting("service", "kubeproxy_sync_proxy_rules_service_changes_pending", "Changes of Services that are not taken in yet."),
		waiting("endpointslice", "kubeproxy_sync_proxy_rules_endpoint_changes_pending", "Changes of EndpointSlices that are not taken in yet."))
	return m
}
