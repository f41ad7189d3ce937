package scheduler

import (
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/obs"
)

// ResourcesPath is where programs look for what Resources serves.
const ResourcesPath = "/metrics/resources"

// Resources serves what pods ask for and how much they may use, as the scheduler counts it, under
// upstream's names. pods returns the cache of all of them; they are looked at when somebody asks.
func Resources(pods func() *cache.Cache, log *slog.Logger) http.Handler {
	labels := []string{"namespace", "pod", "node", "scheduler", "priority", "resource", "unit"}
	reg := prometheus.NewRegistry()
	reg.MustRegister(&resources{
		pods:     pods,
		requests: prometheus.NewDesc("kube_pod_resource_request", "What a pod that has not ended asks for, by the resource.", labels, nil),
		limits:   prometheus.NewDesc("kube_pod_resource_limit", "How much a pod that has not ended may use, by the resource.", labels, nil),
	})
	return obs.MetricsHandler(reg, log)
}

type resources struct {
	pods             func() *cache.Cache
	requests, limits *prometheus.Desc
}

var _ prometheus.Collector = (*resources)(nil)

// Describe is part of prometheus.Collector.
func (r *resources) Describe(out chan<- *prometheus.Desc) {
	out <- r.requests
	out <- r.limits
}

// Collect is part of prometheus.Collector.
func (r *resources) Collect(out chan<- prometheus.Metric) {
	pods := r.pods()
	select {
	case <-pods.Synced():
	default:
		return // it is not known yet what there is
	}
	pods.Snapshot().Scan("", "", func(it *cache.Item) bool {
		p := it.Object.(*corev1.Pod)
		if p.Spec.NodeName != "" && core.PodTerminal(p) {
			return true
		}
		o := resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}
		show(out, r.requests, p, resourcehelper.PodRequests(p, o))
		show(out, r.limits, p, resourcehelper.PodLimits(p, o))
		return true
	})
}

// show shows what a pod has of each resource, if it has any.
func show(out chan<- prometheus.Metric, d *prometheus.Desc, p *corev1.Pod, list corev1.ResourceList) {
	priority := ""
	if p.Spec.Priority != nil {
		priority = strconv.Itoa(int(*p.Spec.Priority))
	}
	for name, q := range list {
		value := float64(q.Value())
		if name == corev1.ResourceCPU {
			value = float64(q.MilliValue()) / 1000
		}
		if value != 0 {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, p.Namespace, p.Name, p.Spec.NodeName, p.Spec.SchedulerName, priority, string(name), unitOf(name))
		}
	}
}

// unitOf is the unit that a resource is counted in.
func unitOf(name corev1.ResourceName) string {
	switch {
	case name == corev1.ResourceCPU:
		return "cores"
	case name == corev1.ResourceMemory, name == corev1.ResourceStorage, name == corev1.ResourceEphemeralStorage, check.IsHugePages(name):
		return "bytes"
	case strings.HasPrefix(string(name), "attachable-volumes-"):
		return "integer"
	}
	return ""
}
