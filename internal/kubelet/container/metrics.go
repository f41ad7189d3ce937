package container

import "github.com/prometheus/client_golang/prometheus"

// metrics have upstream's names.
type metrics struct{ fallbacks, sleepsCut prometheus.Counter }

// newMetrics returns metrics that reg tells of, unless it is nil.
func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_lifecycle_handler_http_fallbacks_total", Help: "The number of times lifecycle handlers successfully fell back to http from https.",
		}),
		sleepsCut: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "kubelet_sleep_action_terminated_early_total", Help: "The number of times lifecycle sleep handler got terminated before it finishes",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.fallbacks, m.sleepsCut)
	}
	return m
}
