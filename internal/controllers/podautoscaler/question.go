package podautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
)

// question is what one metric of an autoscaler wants. Its value is written to now.
type question struct {
	*look
	m        *measured
	selected labels.Selector
	to       *target
	spec     *autoscalingv2.MetricSpec
	now      *autoscalingv2.MetricStatus
}

// refused is why a metric says nothing: the reason of the event and of the condition, and
// the error as these have it and as the whole has it.
type refused struct {
	reason     string
	why, whole error
}

// ask is how many pods the metric wants, and what it is called.
func (q *question) ask(ctx context.Context) (proposal, string, *refused) {
	switch q.spec.Type {
	case autoscalingv2.ResourceMetricSourceType:
		s := q.spec.Resource
		p, name, now, err := q.ofResource(ctx, resourceOf{name: s.Name}, &s.Target)
		if err != nil {
			return p, "", &refused{"FailedGetResourceMetric", err, fmt.Errorf("failed to get %s resource metric value: %w", s.Name, err)}
		}
		*q.now = autoscalingv2.MetricStatus{Type: q.spec.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: s.Name, Current: now}}
		return p, name, nil
	case autoscalingv2.ContainerResourceMetricSourceType:
		s := q.spec.ContainerResource
		p, name, now, err := q.ofResource(ctx, resourceOf{s.Name, s.Container}, &s.Target)
		if err != nil {
			return p, "", &refused{"FailedGetContainerResourceMetric", err, fmt.Errorf("failed to get %s container metric value: %w", s.Name, err)}
		}
		*q.now = autoscalingv2.MetricStatus{Type: q.spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: s.Name, Container: s.Container, Current: now}}
		return p, name, nil
	case autoscalingv2.PodsMetricSourceType:
		return q.ofPods(ctx, q.spec.Pods)
	case autoscalingv2.ObjectMetricSourceType:
		return q.ofObject(ctx, q.spec.Object)
	case autoscalingv2.ExternalMetricSourceType:
		return q.fromOutside(ctx, q.spec.External)
	}
	err := specError{fmt.Errorf("unknown metric source type %q", q.spec.Type)}
	return proposal{}, "", &refused{"InvalidMetricSourceType", err, err}
}

func (q *question) ofResource(ctx context.Context, of resourceOf, t *autoscalingv2.MetricTarget) (proposal, string, autoscalingv2.MetricValueStatus, error) {
	none := autoscalingv2.MetricValueStatus{}
	if t.AverageValue == nil && t.AverageUtilization == nil {
		return proposal{}, "", none, specError{errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")}
	}
	m := *q.m
	m.name = of.name
	var err error
	m.values, err = q.metrics.resources(ctx, q.a.Namespace, q.selected, of)
	if err != nil {
		err = fmt.Errorf("unable to get metrics for resource %s: %w", of.name, err)
	}
	if t.AverageValue != nil {
		var p proposal
		if err == nil {
			p, err = m.byAverage(t.AverageValue.MilliValue())
		}
		if err != nil {
			return p, "", none, fmt.Errorf("failed to get %s usage: %w", of.name, err)
		}
		return p, fmt.Sprintf("%s resource", of.name), autoscalingv2.MetricValueStatus{AverageValue: thousandths(p.value)}, nil
	}
	var p proposal
	if err == nil {
		p, err = m.byShare(*t.AverageUtilization, of.container)
	}
	if err != nil {
		return p, "", none, fmt.Errorf("failed to get %s utilization: %w", of.name, err)
	}
	name := fmt.Sprintf("%s resource utilization (percentage of request)", of.name)
	if of.container != "" {
		name = fmt.Sprintf("%s container resource utilization (percentage of request)", of.name)
	}
	return p, name, autoscalingv2.MetricValueStatus{AverageUtilization: ptr.To(p.utilization), AverageValue: thousandths(p.value)}, nil
}

func (q *question) ofPods(ctx context.Context, s *autoscalingv2.PodsMetricSource) (proposal, string, *refused) {
	m := *q.m
	var (
		p   proposal
		err error
	)
	if m.values, err = q.metrics.ofPods(ctx, q.a.Namespace, q.selected, &s.Metric); err == nil {
		p, err = m.byAverage(s.Target.AverageValue.MilliValue())
	}
	if err != nil {
		return p, "", &refused{"FailedGetPodsMetric", err, fmt.Errorf("failed to get pods metric value: %w", err)}
	}
	*q.now = autoscalingv2.MetricStatus{Type: q.spec.Type, Pods: &autoscalingv2.PodsMetricStatus{
		Metric: s.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: thousandths(p.value)},
	}}
	return p, "pods metric " + s.Metric.Name, nil
}

func (q *question) ofObject(ctx context.Context, s *autoscalingv2.ObjectMetricSource) (proposal, string, *refused) {
	failed := func(err error) (proposal, string, *refused) {
		return proposal{}, "", &refused{"FailedGetObjectMetric", err, fmt.Errorf("failed to get object metric value: %w", err)}
	}
	p, now, err := q.byTarget(&s.Target, func() (int64, error) { return q.metrics.ofObject(ctx, q.a.Namespace, s) })
	switch {
	case errors.Is(err, errNoTarget):
		return failed(specError{errors.New("invalid object metric source: neither a value target nor an average value target was set")})
	case err != nil:
		return failed(err)
	}
	*q.now = autoscalingv2.MetricStatus{Type: q.spec.Type, Object: &autoscalingv2.ObjectMetricStatus{
		DescribedObject: s.DescribedObject, Metric: s.Metric, Current: now,
	}}
	if now.AverageValue != nil {
		return p, fmt.Sprintf("external metric %s(%+v)", s.Metric.Name, s.Metric.Selector), nil
	}
	return p, fmt.Sprintf("%s metric %s", s.DescribedObject.Kind, s.Metric.Name), nil
}

func (q *question) fromOutside(ctx context.Context, s *autoscalingv2.ExternalMetricSource) (proposal, string, *refused) {
	p, now, err := q.byTarget(&s.Target, func() (int64, error) { return q.metrics.fromOutside(ctx, q.a.Namespace, &s.Metric) })
	if err != nil {
		whole := fmt.Errorf("failed to get external metric %s: %w", s.Metric.Name, err)
		switch {
		case errors.Is(err, errNoTarget):
			err = specError{errors.New("invalid external metric source: neither a value target nor an average value target was set")}
			whole = err
		case s.Target.AverageValue != nil:
			whole = fmt.Errorf("failed to get %s external metric: %w", s.Metric.Name, err)
		}
		return p, "", &refused{"FailedGetExternalMetric", err, fmt.Errorf("failed to get %s external metric value: %w", s.Metric.Name, whole)}
	}
	*q.now = autoscalingv2.MetricStatus{Type: q.spec.Type, External: &autoscalingv2.ExternalMetricStatus{Metric: s.Metric, Current: now}}
	return p, fmt.Sprintf("external metric %s(%+v)", s.Metric.Name, s.Metric.Selector), nil
}

// errNoTarget says that a metric is held against nothing.
var errNoTarget = errors.New("no target")

// byTarget holds a value that all pods share against its target: for each of them, or as
// it is.
func (q *question) byTarget(t *autoscalingv2.MetricTarget, read func() (int64, error)) (proposal, autoscalingv2.MetricValueStatus, error) {
	average := t.AverageValue != nil && (t.Type == autoscalingv2.AverageValueMetricType || t.Value == nil)
	if !average && t.Value == nil {
		return proposal{}, autoscalingv2.MetricValueStatus{}, errNoTarget
	}
	value, err := read()
	if err != nil {
		return proposal{}, autoscalingv2.MetricValueStatus{}, err
	}
	if average {
		p := q.m.byValuePerPod(value, t.AverageValue.MilliValue(), q.to.scale.Status.Replicas)
		return p, autoscalingv2.MetricValueStatus{AverageValue: thousandths(p.value)}, nil
	}
	p, err := q.m.byValue(value, t.Value.MilliValue())
	return p, autoscalingv2.MetricValueStatus{Value: thousandths(p.value)}, err
}
