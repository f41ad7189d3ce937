package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// Metrics as autoscaling/v2beta1 has them, and as the annotations of autoscaling/v1 carry
// them: a field for each kind of target, where autoscaling/v2 has one target with a type.

// metricsTo reads the metrics of an older version.
func metricsTo(old []autoscalingv1.MetricSpec) []autoscalingv2.MetricSpec {
	var list []autoscalingv2.MetricSpec
	for i := range old {
		m := &old[i]
		out := autoscalingv2.MetricSpec{Type: autoscalingv2.MetricSourceType(m.Type)}
		if s := m.Object; s != nil {
			out.Object = &autoscalingv2.ObjectMetricSource{
				DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target), Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &s.TargetValue},
			}
			if s.AverageValue != nil {
				out.Object.Target = autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: s.AverageValue, Value: notZero(s.TargetValue)}
			}
		}
		if s := m.Pods; s != nil {
			out.Pods = &autoscalingv2.PodsMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &s.TargetAverageValue},
			}
		}
		if s := m.Resource; s != nil {
			out.Resource = &autoscalingv2.ResourceMetricSource{Name: s.Name, Target: utilizationTo(s.TargetAverageUtilization, s.TargetAverageValue)}
		}
		if s := m.ContainerResource; s != nil {
			out.ContainerResource = &autoscalingv2.ContainerResourceMetricSource{
				Name: s.Name, Container: s.Container, Target: utilizationTo(s.TargetAverageUtilization, s.TargetAverageValue),
			}
		}
		if s := m.External; s != nil {
			out.External = &autoscalingv2.ExternalMetricSource{
				Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector},
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, Value: s.TargetValue, AverageValue: s.TargetAverageValue},
			}
			if s.TargetValue != nil {
				out.External.Target.Type = autoscalingv2.ValueMetricType
			}
		}
		list = append(list, out)
	}
	return list
}

func utilizationTo(percent *int32, value *quantity.Quantity) autoscalingv2.MetricTarget {
	t := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: value, AverageUtilization: percent}
	if percent != nil {
		t.Type = autoscalingv2.UtilizationMetricType
	}
	return t
}

// notZero is an amount that a version without pointers has left out if it is zero.
func notZero(q quantity.Quantity) *quantity.Quantity {
	if q.IsZero() {
		return nil
	}
	return &q
}

// metricsFrom shows metrics as an older version has them.
func metricsFrom(specs []autoscalingv2.MetricSpec) []autoscalingv1.MetricSpec {
	var list []autoscalingv1.MetricSpec
	for i := range specs {
		m := &specs[i]
		out := autoscalingv1.MetricSpec{Type: autoscalingv1.MetricSourceType(m.Type)}
		if s := m.Object; s != nil {
			out.Object = &autoscalingv1.ObjectMetricSource{
				Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name, Selector: s.Metric.Selector,
				TargetValue: ptr.Deref(s.Target.Value, quantity.Quantity{}), AverageValue: s.Target.AverageValue,
			}
		}
		if s := m.Pods; s != nil {
			out.Pods = &autoscalingv1.PodsMetricSource{
				MetricName: s.Metric.Name, Selector: s.Metric.Selector, TargetAverageValue: ptr.Deref(s.Target.AverageValue, quantity.Quantity{}),
			}
		}
		if s := m.Resource; s != nil {
			out.Resource = &autoscalingv1.ResourceMetricSource{
				Name: s.Name, TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue,
			}
		}
		if s := m.ContainerResource; s != nil {
			out.ContainerResource = &autoscalingv1.ContainerResourceMetricSource{
				Name: s.Name, Container: s.Container, TargetAverageUtilization: s.Target.AverageUtilization, TargetAverageValue: s.Target.AverageValue,
			}
		}
		if s := m.External; s != nil {
			out.External = &autoscalingv1.ExternalMetricSource{
				MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector, TargetValue: s.Target.Value, TargetAverageValue: s.Target.AverageValue,
			}
		}
		list = append(list, out)
	}
	return list
}

// currentTo reads the values of metrics of an older version.
func currentTo(old []autoscalingv1.MetricStatus) []autoscalingv2.MetricStatus {
	var list []autoscalingv2.MetricStatus
	for i := range old {
		m := &old[i]
		out := autoscalingv2.MetricStatus{Type: autoscalingv2.MetricSourceType(m.Type)}
		if s := m.Object; s != nil {
			out.Object = &autoscalingv2.ObjectMetricStatus{
				DescribedObject: autoscalingv2.CrossVersionObjectReference(s.Target), Metric: autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
				Current: autoscalingv2.MetricValueStatus{Value: &s.CurrentValue, AverageValue: s.AverageValue},
			}
		}
		if s := m.Pods; s != nil {
			out.Pods = &autoscalingv2.PodsMetricStatus{
				Metric:  autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.Selector},
				Current: autoscalingv2.MetricValueStatus{AverageValue: &s.CurrentAverageValue},
			}
		}
		if s := m.Resource; s != nil {
			out.Resource = &autoscalingv2.ResourceMetricStatus{
				Name: s.Name, Current: autoscalingv2.MetricValueStatus{AverageUtilization: s.CurrentAverageUtilization, AverageValue: &s.CurrentAverageValue},
			}
		}
		if s := m.ContainerResource; s != nil {
			out.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{
				Name: s.Name, Container: s.Container,
				Current: autoscalingv2.MetricValueStatus{AverageUtilization: s.CurrentAverageUtilization, AverageValue: &s.CurrentAverageValue},
			}
		}
		if s := m.External; s != nil {
			out.External = &autoscalingv2.ExternalMetricStatus{
				Metric:  autoscalingv2.MetricIdentifier{Name: s.MetricName, Selector: s.MetricSelector},
				Current: autoscalingv2.MetricValueStatus{Value: &s.CurrentValue, AverageValue: s.CurrentAverageValue},
			}
		}
		list = append(list, out)
	}
	return list
}

// currentFrom shows the values of metrics as an older version has them.
func currentFrom(now []autoscalingv2.MetricStatus) []autoscalingv1.MetricStatus {
	var list []autoscalingv1.MetricStatus
	for i := range now {
		m := &now[i]
		out := autoscalingv1.MetricStatus{Type: autoscalingv1.MetricSourceType(m.Type)}
		if s := m.Object; s != nil {
			out.Object = &autoscalingv1.ObjectMetricStatus{
				Target: autoscalingv1.CrossVersionObjectReference(s.DescribedObject), MetricName: s.Metric.Name, Selector: s.Metric.Selector,
				CurrentValue: ptr.Deref(s.Current.Value, quantity.Quantity{}), AverageValue: s.Current.AverageValue,
			}
		}
		if s := m.Pods; s != nil {
			out.Pods = &autoscalingv1.PodsMetricStatus{
				MetricName: s.Metric.Name, Selector: s.Metric.Selector, CurrentAverageValue: ptr.Deref(s.Current.AverageValue, quantity.Quantity{}),
			}
		}
		if s := m.Resource; s != nil {
			out.Resource = &autoscalingv1.ResourceMetricStatus{
				Name: s.Name, CurrentAverageUtilization: s.Current.AverageUtilization, CurrentAverageValue: ptr.Deref(s.Current.AverageValue, quantity.Quantity{}),
			}
		}
		if s := m.ContainerResource; s != nil {
			out.ContainerResource = &autoscalingv1.ContainerResourceMetricStatus{
				Name: s.Name, Container: s.Container, CurrentAverageUtilization: s.Current.AverageUtilization,
				CurrentAverageValue: ptr.Deref(s.Current.AverageValue, quantity.Quantity{}),
			}
		}
		if s := m.External; s != nil {
			out.External = &autoscalingv1.ExternalMetricStatus{
				MetricName: s.Metric.Name, MetricSelector: s.Metric.Selector,
				CurrentValue: ptr.Deref(s.Current.Value, quantity.Quantity{}), CurrentAverageValue: s.Current.AverageValue,
			}
		}
		list = append(list, out)
	}
	return list
}

func conditionsTo(old []autoscalingv1.HorizontalPodAutoscalerCondition) []autoscalingv2.HorizontalPodAutoscalerCondition {
	var list []autoscalingv2.HorizontalPodAutoscalerCondition
	for _, c := range old {
		list = append(list, autoscalingv2.HorizontalPodAutoscalerCondition{
			Type: autoscalingv2.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	return list
}

func conditionsFrom(now []autoscalingv2.HorizontalPodAutoscalerCondition) []autoscalingv1.HorizontalPodAutoscalerCondition {
	var list []autoscalingv1.HorizontalPodAutoscalerCondition
	for _, c := range now {
		list = append(list, autoscalingv1.HorizontalPodAutoscalerCondition{
			Type: autoscalingv1.HorizontalPodAutoscalerConditionType(c.Type), Status: c.Status, LastTransitionTime: c.LastTransitionTime,
			Reason: c.Reason, Message: c.Message, ObservedGeneration: c.ObservedGeneration,
		})
	}
	return list
}
