package device

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have upstream's names.
type metrics struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func newMetrics(reg *prometheus.Registry) *metrics {
	m := &metrics{
		registrations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_device_plugin_registration_total",
			Help: "Cumulative number of device plugin registrations. Broken down by resource name.",
		}, []string{"resource_name"}),
		allocations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_device_plugin_alloc_duration_seconds",
			Help: "Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
		}, []string{"resource_name"}),
	}
	reg.MustRegister(m.registrations, m.allocations)
	return m
}

func (m *metrics) registered(resource string) { m.registrations.WithLabelValues(resource).Inc() }

func (m *metrics) allocated(resource string, began time.Time) {
	m.allocations.WithLabelValues(resource).Observe(time.Since(began).Seconds())
}
