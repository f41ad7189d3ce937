package metrics

import (
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// Pods are what pods use, container by container.
var Pods = resource.Define(resource.Spec[*metricsv1beta1.PodMetrics]{
	Names:    resource.Names{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics", Plural: "pods", Namespaced: true},
	Computed: true,
	Columns: []resource.Column[*metricsv1beta1.PodMetrics]{
		{Name: "cpu", Format: "quantity", Value: func(p *metricsv1beta1.PodMetrics) any { return podUsage(p, corev1.ResourceCPU) }},
		{Name: "memory", Format: "quantity", Value: func(p *metricsv1beta1.PodMetrics) any { return podUsage(p, corev1.ResourceMemory) }},
		{Name: "Window", Format: "duration", Value: func(p *metricsv1beta1.PodMetrics) any { return p.Window.Duration.String() }},
	},
	Ageless: true,
	Versions: []resource.Version[*metricsv1beta1.PodMetrics]{
		resource.SameWire[*metricsv1.PodMetrics](resource.Version[*metricsv1beta1.PodMetrics]{Group: "metrics.k8s.io", Version: "v1"}),
	},
})

// podUsage is what all containers of a pod use of a resource together.
func podUsage(p *metricsv1beta1.PodMetrics, name corev1.ResourceName) string {
	var sum quantity.Quantity
	for i := range p.Containers {
		sum.Add(p.Containers[i].Usage[name])
	}
	return sum.String()
}
