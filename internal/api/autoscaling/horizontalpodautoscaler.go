package autoscaling

import (
	"fmt"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

var (
	specDoc   = autoscalingv2.HorizontalPodAutoscalerSpec{}.SwaggerDoc()
	statusDoc = autoscalingv2.HorizontalPodAutoscalerStatus{}.SwaggerDoc()
)

// HorizontalPodAutoscalers set the number of a workload's pods by what they use. The
// checks are in horizontalpodautoscaler_validate.go, the versions before autoscaling/v2 in
// horizontalpodautoscaler_v1.go and horizontalpodautoscaler_v2beta1.go.
var HorizontalPodAutoscalers = resource.Define(resource.Spec[*autoscalingv2.HorizontalPodAutoscaler]{
	Names: resource.Names{
		Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler", Plural: "horizontalpodautoscalers", Short: []string{"hpa"},
		Categories: []string{"all"}, Namespaced: true,
	},
	HasGeneration: true,
	Default:       defaultAutoscaler,
	Prepare: func(obj, old *autoscalingv2.HorizontalPodAutoscaler) {
		if old == nil {
			obj.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateAutoscaler,
	Columns: []resource.Column[*autoscalingv2.HorizontalPodAutoscaler]{
		{Name: "Reference", Description: specDoc["scaleTargetRef"], Value: func(a *autoscalingv2.HorizontalPodAutoscaler) any {
			return a.Spec.ScaleTargetRef.Kind + "/" + a.Spec.ScaleTargetRef.Name
		}},
		{Name: "Targets", Description: specDoc["metrics"], Value: func(a *autoscalingv2.HorizontalPodAutoscaler) any { return targets(a) }},
		{Name: "MinPods", Description: specDoc["minReplicas"], Value: func(a *autoscalingv2.HorizontalPodAutoscaler) any {
			if a.Spec.MinReplicas == nil {
				return "<unset>"
			}
			return fmt.Sprint(*a.Spec.MinReplicas)
		}},
		{Name: "MaxPods", Description: specDoc["maxReplicas"], Value: func(a *autoscalingv2.HorizontalPodAutoscaler) any { return int64(a.Spec.MaxReplicas) }},
		{Name: "Replicas", Description: statusDoc["currentReplicas"], Value: func(a *autoscalingv2.HorizontalPodAutoscaler) any { return int64(a.Status.CurrentReplicas) }},
	},
	Sub: []resource.Sub[*autoscalingv2.HorizontalPodAutoscaler]{{
		Name:     "status",
		Merge:    func(obj, old *autoscalingv2.HorizontalPodAutoscaler) { obj.Spec = old.Spec },
		Validate: validateAutoscalerStatus,
	}},
	Versions: []resource.Version[*autoscalingv2.HorizontalPodAutoscaler]{
		autoscalerV1,
		{
			Group: "autoscaling", Version: "v2beta2",
			Deprecated: "autoscaling/v2beta2 HorizontalPodAutoscaler is deprecated in v1.23+, unavailable in v1.26+; use autoscaling/v2 HorizontalPodAutoscaler",
			// It became autoscaling/v2 as it was.
			New: func() resource.Object { return &autoscalingv2.HorizontalPodAutoscaler{} },
			To: func(obj resource.Object) (*autoscalingv2.HorizontalPodAutoscaler, error) {
				return obj.(*autoscalingv2.HorizontalPodAutoscaler), nil
			},
			From: func(obj *autoscalingv2.HorizontalPodAutoscaler) (resource.Object, error) { return obj, nil },
		},
		autoscalerV2beta1,
	},
})

// defaultCPUUtilization is the target of an autoscaler that names no metric.
const defaultCPUUtilization = 80

func defaultAutoscaler(a *autoscalingv2.HorizontalPodAutoscaler) {
	s := &a.Spec
	if s.MinReplicas == nil {
		s.MinReplicas = ptr.To[int32](1)
	}
	if len(s.Metrics) == 0 {
		s.Metrics = []autoscalingv2.MetricSpec{cpuUtilization(defaultCPUUtilization)}
	}
	if s.Behavior != nil {
		s.Behavior.ScaleUp = defaultRules(s.Behavior.ScaleUp, autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: ptr.To[int32](0),
			Policies: []autoscalingv2.HPAScalingPolicy{
				{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}, {Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15},
			},
		})
		// How long scaling down is stabilized otherwise is a flag of the controller.
		s.Behavior.ScaleDown = defaultRules(s.Behavior.ScaleDown, autoscalingv2.HPAScalingRules{
			Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}},
		})
	}
}

// cpuUtilization is the metric that autoscaling/v1 knows.
func cpuUtilization(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

// defaultRules are the rules of one direction, with what they leave open as it is in all.
func defaultRules(rules *autoscalingv2.HPAScalingRules, all autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	if rules == nil {
		rules = &autoscalingv2.HPAScalingRules{}
	}
	if rules.SelectPolicy == nil {
		rules.SelectPolicy = ptr.To(autoscalingv2.MaxChangePolicySelect)
	}
	if rules.StabilizationWindowSeconds == nil {
		rules.StabilizationWindowSeconds = all.StabilizationWindowSeconds
	}
	if rules.Policies == nil {
		rules.Policies = all.Policies
	}
	return rules
}

// shownTargets is how many metrics kubectl get lists.
const shownTargets = 2

// targets are the metrics of an autoscaler as kubectl get shows them, each as it is and as
// it should be.
func targets(a *autoscalingv2.HorizontalPodAutoscaler) string {
	specs := a.Spec.Metrics
	if len(specs) == 0 {
		return "<none>"
	}
	var list []string
	for i := range specs[:min(len(specs), shownTargets)] {
		var now autoscalingv2.MetricStatus
		if i < len(a.Status.CurrentMetrics) {
			now = a.Status.CurrentMetrics[i]
		}
		list = append(list, target(&specs[i], &now))
	}
	text := strings.Join(list, ", ")
	if more := len(specs) - shownTargets; more > 0 {
		return fmt.Sprintf("%s + %d more...", text, more)
	}
	return text
}

// target is one metric as kubectl get shows it; now is empty if it is not known.
func target(m *autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	var current autoscalingv2.MetricValueStatus
	switch m.Type {
	case autoscalingv2.ExternalMetricSourceType:
		if now.External != nil {
			current = now.External.Current
		}
		return valueOrAverage(&m.External.Target, &current)
	case autoscalingv2.ObjectMetricSourceType:
		if now.Object != nil {
			current = now.Object.Current
		}
		return valueOrAverage(&m.Object.Target, &current)
	case autoscalingv2.PodsMetricSourceType:
		if now.Pods != nil {
			current = now.Pods.Current
		}
		return known(current.AverageValue) + "/" + m.Pods.Target.AverageValue.String()
	case autoscalingv2.ResourceMetricSourceType:
		if now.Resource != nil {
			current = now.Resource.Current
		}
		return string(m.Resource.Name) + ": " + utilization(&m.Resource.Target, &current)
	case autoscalingv2.ContainerResourceMetricSourceType:
		if now.ContainerResource != nil {
			current = now.ContainerResource.Current
		}
		return string(m.ContainerResource.Name) + ": " + utilization(&m.ContainerResource.Target, &current)
	}
	return "<unknown type>"
}

func valueOrAverage(target *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return known(now.AverageValue) + "/" + target.AverageValue.String() + " (avg)"
	}
	return known(now.Value) + "/" + target.Value.String()
}

func utilization(target *autoscalingv2.MetricTarget, now *autoscalingv2.MetricValueStatus) string {
	if target.AverageValue != nil {
		return known(now.AverageValue) + "/" + target.AverageValue.String()
	}
	current, wanted := "<unknown>", "<auto>"
	if now.AverageUtilization != nil {
		current = fmt.Sprintf("%d%%", *now.AverageUtilization)
	}
	if target.AverageUtilization != nil {
		wanted = fmt.Sprintf("%d%%", *target.AverageUtilization)
	}
	return current + "/" + wanted
}

func known(q *quantity.Quantity) string {
	if q == nil {
		return "<unknown>"
	}
	return q.String()
}
