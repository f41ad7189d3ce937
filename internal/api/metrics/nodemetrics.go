package metrics

import (
	metricsv1 "k8s.io/metrics/pkg/apis/metrics/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/kemudi/kemudi/internal/resource"
)

// Nodes are what nodes use. The version before metrics.k8s.io/v1 is the main one: other
// servers of the group, and autoscalers, know no other yet.
var Nodes = resource.Define(resource.Spec[*metricsv1beta1.NodeMetrics]{
	Names:    resource.Names{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "NodeMetrics", Plural: "nodes"},
	Computed: true,
	Columns: []resource.Column[*metricsv1beta1.NodeMetrics]{
		{Name: "cpu", Format: "quantity", Value: func(n *metricsv1beta1.NodeMetrics) any { return n.Usage.Cpu().String() }},
		{Name: "memory", Format: "quantity", Value: func(n *metricsv1beta1.NodeMetrics) any { return n.Usage.Memory().String() }},
		{Name: "Window", Format: "duration", Value: func(n *metricsv1beta1.NodeMetrics) any { return n.Window.Duration.String() }},
	},
	Ageless: true,
	Versions: []resource.Version[*metricsv1beta1.NodeMetrics]{
		resource.SameWire[*metricsv1.NodeMetrics](resource.Version[*metricsv1beta1.NodeMetrics]{Group: "metrics.k8s.io", Version: "v1"}),
	},
})
