package podresources

import "github.com/prometheus/client_golang/prometheus"

// The versions of the API that are served.
const (
	version      = "v1"
	olderVersion = "v1alpha1"
)

// metrics have upstream's names.
type metrics struct{ all, list, get, getErrors, allocatable *prometheus.CounterVec }

func newMetrics(reg *prometheus.Registry) *metrics {
	label := []string{"server_api_version"}
	m := &metrics{
		all: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_requests_total",
			Help: "Cumulative number of requests to the PodResource endpoint. Broken down by server api version.",
		}, label),
		list: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_requests_list",
			Help: "Number of requests to the PodResource List endpoint. Broken down by server api version.",
		}, label),
		get: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_requests_get",
			Help: "Number of requests to the PodResource Get endpoint. Broken down by server api version.",
		}, label),
		getErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_errors_get",
			Help: "Number of requests to the PodResource Get endpoint which returned error. Broken down by server api version.",
		}, label),
		allocatable: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_pod_resources_endpoint_requests_get_allocatable",
			Help: "Number of requests to the PodResource GetAllocatableResources endpoint. Broken down by server api version.",
		}, label),
	}
	reg.MustRegister(m.all, m.list, m.get, m.getErrors, m.allocatable)
	return m
}

// asked counts a request of a version.
func (m *metrics) asked(which *prometheus.CounterVec, version string) {
	m.all.WithLabelValues(version).Inc()
	which.WithLabelValues(version).Inc()
}

func (m *metrics) failed(which *prometheus.CounterVec) { which.WithLabelValues(version).Inc() }
