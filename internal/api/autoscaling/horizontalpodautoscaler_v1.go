package autoscaling

import (
	"encoding/json"
	"fmt"
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// Annotations that carry what autoscaling/v1 has no fields for.
const (
	metricsAnnotation    = "autoscaling.alpha.kubernetes.io/metrics"
	currentAnnotation    = "autoscaling.alpha.kubernetes.io/current-metrics"
	conditionsAnnotation = "autoscaling.alpha.kubernetes.io/conditions"
	behaviorAnnotation   = "autoscaling.alpha.kubernetes.io/behavior"
)

// autoscalerV1 knows one metric, the share of CPU. All else is in annotations.
var autoscalerV1 = resource.Version[*autoscalingv2.HorizontalPodAutoscaler]{
	Group: "autoscaling", Version: "v1",
	New: func() resource.Object { return &autoscalingv1.HorizontalPodAutoscaler{} },
	Default: func(obj resource.Object) {
		defaultLeast(&obj.(*autoscalingv1.HorizontalPodAutoscaler).Spec.MinReplicas)
	},
	To: func(obj resource.Object) (*autoscalingv2.HorizontalPodAutoscaler, error) {
		return fromV1(obj.(*autoscalingv1.HorizontalPodAutoscaler)), nil
	},
	From: func(a *autoscalingv2.HorizontalPodAutoscaler) (resource.Object, error) { return toV1(a) },
}

func defaultLeast(n **int32) {
	if *n == nil {
		*n = ptr.To[int32](1)
	}
}

func fromV1(old *autoscalingv1.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	a := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: old.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(old.Spec.ScaleTargetRef), MinReplicas: old.Spec.MinReplicas, MaxReplicas: old.Spec.MaxReplicas,
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: old.Status.ObservedGeneration, LastScaleTime: old.Status.LastScaleTime,
			CurrentReplicas: old.Status.CurrentReplicas, DesiredReplicas: old.Status.DesiredReplicas,
		},
	}
	var metrics []autoscalingv1.MetricSpec
	if read(old.Annotations, metricsAnnotation, &metrics) {
		a.Spec.Metrics = metricsTo(metrics)
	}
	if p := old.Spec.TargetCPUUtilizationPercentage; p != nil {
		a.Spec.Metrics = append(a.Spec.Metrics, cpuUtilization(*p))
	}
	var current []autoscalingv1.MetricStatus
	if read(old.Annotations, currentAnnotation, &current) {
		a.Status.CurrentMetrics = currentTo(current)
	} else if p := old.Status.CurrentCPUUtilizationPercentage; p != nil {
		a.Status.CurrentMetrics = []autoscalingv2.MetricStatus{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricStatus{
			Name: corev1.ResourceCPU, Current: autoscalingv2.MetricValueStatus{AverageUtilization: p},
		}}}
	}
	var conditions []autoscalingv1.HorizontalPodAutoscalerCondition
	if read(old.Annotations, conditionsAnnotation, &conditions) {
		a.Status.Conditions = conditionsTo(conditions)
	}
	if text, ok := old.Annotations[behaviorAnnotation]; ok {
		a.Spec.Behavior = parseBehavior(text)
	}
	a.Annotations = withoutCarried(old.Annotations)
	return a
}

// read decodes an annotation; false if there is none that can be read.
func read(annotations map[string]string, name string, into any) bool {
	text, ok := annotations[name]
	return ok && json.Unmarshal([]byte(text), into) == nil
}

// withoutCarried are annotations without those that carry fields.
func withoutCarried(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for _, name := range []string{metricsAnnotation, currentAnnotation, conditionsAnnotation, behaviorAnnotation} {
		delete(out, name)
	}
	return out
}

// carried puts what an older version has no field for into annotations. A value that is
// empty is not carried.
type carried struct {
	name  string
	value any
	there bool
}

func carry(a *autoscalingv2.HorizontalPodAutoscaler, values ...carried) (map[string]string, error) {
	out := withoutCarried(a.Annotations)
	set := func(name, text string) {
		if out == nil {
			out = map[string]string{}
		}
		out[name] = text
	}
	for _, v := range values {
		if !v.there {
			continue
		}
		text, err := json.Marshal(v.value)
		if err != nil {
			return nil, fmt.Errorf("write annotation %s: %w", v.name, err)
		}
		set(v.name, string(text))
	}
	if b := a.Spec.Behavior; b != nil {
		text, err := behaviorText(b)
		if err != nil {
			return nil, fmt.Errorf("write annotation %s: %w", behaviorAnnotation, err)
		}
		set(behaviorAnnotation, text)
	}
	return out, nil
}

func toV1(a *autoscalingv2.HorizontalPodAutoscaler) (*autoscalingv1.HorizontalPodAutoscaler, error) {
	old := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: a.ObjectMeta,
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef), MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
		},
		Status: autoscalingv1.HorizontalPodAutoscalerStatus{
			ObservedGeneration: a.Status.ObservedGeneration, LastScaleTime: a.Status.LastScaleTime,
			CurrentReplicas: a.Status.CurrentReplicas, DesiredReplicas: a.Status.DesiredReplicas,
		},
	}
	var others []autoscalingv2.MetricSpec
	for _, m := range a.Spec.Metrics {
		if r := m.Resource; m.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU &&
			r.Target.AverageUtilization != nil && old.Spec.TargetCPUUtilizationPercentage == nil {
			old.Spec.TargetCPUUtilizationPercentage = r.Target.AverageUtilization
			continue
		}
		others = append(others, m)
	}
	more := len(a.Status.CurrentMetrics) > 1 // than the field says
	for _, m := range a.Status.CurrentMetrics {
		r := m.Resource
		if m.Type == autoscalingv2.ResourceMetricSourceType && r != nil && r.Name == corev1.ResourceCPU && r.Current.AverageUtilization != nil {
			old.Status.CurrentCPUUtilizationPercentage = r.Current.AverageUtilization
		}
		more = more || r == nil || r.Name != corev1.ResourceCPU || r.Current.AverageValue != nil
	}
	var err error
	old.Annotations, err = carry(a,
		carried{metricsAnnotation, metricsFrom(others), len(others) > 0},
		carried{currentAnnotation, currentFrom(a.Status.CurrentMetrics), more},
		carried{conditionsAnnotation, conditionsFrom(a.Status.Conditions), len(a.Status.Conditions) > 0},
	)
	return old, err
}
