package proxy

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics has the names of kube-proxy where it is the same thing.
type metrics struct {
	sync, full, partial prometheus.Histogram
	programming         prometheus.Histogram
	lastSync, lastQueue prometheus.Gauge
	failures            prometheus.Counter
	serviceChanges      prometheus.Counter
	endpointChanges     prometheus.Counter
	staleFlows          prometheus.Counter
	overwritten         prometheus.Counter
	noLocal             *prometheus.GaugeVec
	healthz, livez      *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	// From a tenth of a millisecond, for one endpoint, to many seconds.
	buckets := prometheus.ExponentialBuckets(0.0001, 2, 18)
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		sync:    histogram("kubeproxy_sync_proxy_rules_duration_seconds", "Time from taking in changes to having the rules in force, in seconds.", buckets),
		full:    histogram("kubeproxy_sync_full_proxy_rules_duration_seconds", "The same, where all rules were written anew.", buckets),
		partial: histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds", "The same, where only what had changed was written.", buckets),
		programming: histogram("kubeproxy_network_programming_duration_seconds",
			"Time from a change of a service or pod to having the rules for it in force, in seconds.", prometheus.ExponentialBuckets(0.001, 2, 20)),
		lastSync: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeproxy_sync_proxy_rules_last_timestamp_seconds",
			Help: "When rules were last brought into force, in seconds since 1970."}),
		lastQueue: prometheus.NewGauge(prometheus.GaugeOpts{Name: "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
			Help: "When a change of the rules was last asked for, in seconds since 1970."}),
		failures:        counter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total", "Transactions that the kernel refused."),
		serviceChanges:  counter("kubeproxy_sync_proxy_rules_service_changes_total", "Changes of Services taken in."),
		endpointChanges: counter("kubeproxy_sync_proxy_rules_endpoint_changes_total", "Changes of EndpointSlices taken in."),
		staleFlows:      counter("kubeproxy_conntrack_reconciler_deleted_entries_total", "UDP flows ended because their endpoint had gone."),
		overwritten:     counter("kemudi_proxy_rules_overwritten_total", "Times that another program changed our tables, and all rules were written anew."),
		healthz: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_proxy_healthz_total",
			Help: "Answers of /healthz, by HTTP status code."}, []string{"code"}),
		livez: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubeproxy_proxy_livez_total",
			Help: "Answers of /livez, by HTTP status code."}, []string{"code"}),
	}
	m.noLocal = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
		Help: "Ports of services that must stay on the node by their traffic policy, and whose endpoints are all elsewhere."}, []string{"traffic_policy", "ip_family"})
	if reg != nil {
		reg.MustRegister(m.noLocal, m.sync, m.full, m.partial, m.programming, m.lastSync, m.lastQueue, m.failures, m.serviceChanges,
			m.endpointChanges, m.staleFlows, m.overwritten, m.healthz, m.livez)
	}
	return m
}
