package cloud

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	cloudprovider "k8s.io/cloud-provider"
)

// nodeMetrics are those of the loop that initialises nodes.
type nodeMetrics struct{ untainted, initialised prometheus.Histogram }

func newNodeMetrics(reg prometheus.Registerer) nodeMetrics {
	buckets := prometheus.ExponentialBuckets(1, 4, 6)
	m := nodeMetrics{
		untainted: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "node_controller_cloud_provider_taint_removal_delay_seconds", Buckets: buckets,
			Help: "How old nodes were when the taint was removed that says that the cloud has not initialised them.",
		}),
		initialised: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "node_controller_initial_node_sync_delay_seconds", Buckets: buckets,
			Help: "How old nodes were when all was written that the cloud knows of them.",
		}),
	}
	reg.MustRegister(m.untainted, m.initialised)
	return m
}

// lifecycleMetrics are those of the loop that looks after nodes that are not ready.
type lifecycleMetrics struct{ calls *prometheus.CounterVec }

func newLifecycleMetrics(reg prometheus.Registerer) lifecycleMetrics {
	m := lifecycleMetrics{calls: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "cloud_node_lifecycle_controller_cloud_provider_calls_total",
		Help: "Questions to the cloud about nodes that are not ready, by operation and result.",
	}, []string{"operation", "result"})}
	reg.MustRegister(m.calls)
	return m
}

// note counts a call and how it ended.
func (m lifecycleMetrics) note(operation string, err error) {
	result := "success"
	switch {
	case err == nil:
	case errors.Is(err, cloudprovider.NotImplemented):
		result = "not_implemented"
	case errors.Is(err, cloudprovider.InstanceNotFound):
		result = "instance_not_found"
	case errors.Is(err, context.Canceled):
		result = "canceled"
	default:
		result = "error"
	}
	m.calls.WithLabelValues(operation, result).Inc()
}

// routeMetrics are those of the loop of routes.
type routeMetrics struct{ syncs *prometheus.CounterVec }

func newRouteMetrics(reg prometheus.Registerer) routeMetrics {
	m := routeMetrics{syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "route_controller_route_sync_total",
		Help: "Looks at the cloud's routes, by what caused them (periodic, node_change) and what came of them (changed, noop, error).",
	}, []string{"outcome", "trigger"})}
	reg.MustRegister(m.syncs)
	return m
}

// serviceMetrics are those of the loop of balancers.
type serviceMetrics struct {
	syncs, failed prometheus.Counter
	nodes, hosts  prometheus.Histogram
}

func newServiceMetrics(reg prometheus.Registerer) serviceMetrics {
	buckets := prometheus.ExponentialBuckets(1, 2, 15)
	m := serviceMetrics{
		syncs: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "service_controller_loadbalancer_sync_total", Help: "Changes of a balancer's nodes.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "service_controller_nodesync_error_total", Help: "Changes of a balancer's nodes that failed.",
		}),
		nodes: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "service_controller_nodesync_latency_seconds", Buckets: buckets, Help: "How long it took to see what nodes a balancer should have, and to have it so.",
		}),
		hosts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "service_controller_update_loadbalancer_host_latency_seconds", Buckets: buckets, Help: "How long the cloud took to change a balancer's nodes.",
		}),
	}
	reg.MustRegister(m.syncs, m.failed, m.nodes, m.hosts)
	return m
}
