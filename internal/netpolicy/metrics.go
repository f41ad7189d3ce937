package netpolicy

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	sync        prometheus.Histogram
	failures    prometheus.Counter
	overwritten prometheus.Counter
	ended       prometheus.Counter
	policies    prometheus.Gauge
	isolated    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kemudi_network_policy_sync_duration_seconds", Help: "Time from taking in changes to having the rules of policies in force, in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 18), // from a tenth of a millisecond to many seconds
		}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kemudi_network_policy_sync_failures_total", Help: "Transactions with rules of policies that the kernel refused.",
		}),
		overwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kemudi_network_policy_rules_overwritten_total", Help: "Times that another program changed the rules of policies, and all were written anew.",
		}),
		ended: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kemudi_network_policy_ended_connections_total", Help: "Connections ended because a policy does not allow them any more.",
		}),
		policies: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "kemudi_network_policies", Help: "NetworkPolicies that this node knows of.",
		}),
		isolated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "kemudi_network_policy_isolated_pods", Help: "Pods of this node that policies do not let have all connections, by direction.",
		}, []string{"direction"}),
	}
	if reg != nil {
		reg.MustRegister(m.sync, m.failures, m.overwritten, m.ended, m.policies, m.isolated)
	}
	return m
}
