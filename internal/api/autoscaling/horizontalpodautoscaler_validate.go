package autoscaling

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/validation/path"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

func validateAutoscaler(obj, old *autoscalingv2.HorizontalPodAutoscaler, errs *resource.Errors) {
	s := &obj.Spec
	least := ptr.Deref(s.MinReplicas, 1)
	errs.NonNegative("spec.minReplicas", int64(least))
	if s.MaxReplicas < 1 {
		errs.Invalid("spec.maxReplicas", s.MaxReplicas, "must be greater than 0")
	}
	if s.MaxReplicas < least {
		errs.Invalid("spec.maxReplicas", s.MaxReplicas, "must be greater than or equal to `minReplicas`")
	}
	validateTarget(obj, old, errs)
	for i := range s.Metrics {
		validateMetric(&s.Metrics[i], errs.At("spec.metrics[%d]", i))
	}
	if least == 0 && !ScalesFromZero(obj) {
		errs.Forbidden("spec.metrics", "must specify at least one Object or External metric to support scaling to zero replicas")
	}
	if b := s.Behavior; b != nil {
		validateRules(b.ScaleUp, errs.At("spec.behavior.scaleUp"))
		validateRules(b.ScaleDown, errs.At("spec.behavior.scaleDown"))
	}
}

// ScalesFromZero reports whether the autoscaler has a metric that is there without any pod.
func ScalesFromZero(a *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(a.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

func validateAutoscalerStatus(obj, _ *autoscalingv2.HorizontalPodAutoscaler, errs *resource.Errors) {
	errs.NonNegative("status.currentReplicas", int64(obj.Status.CurrentReplicas))
	errs.NonNegative("status.desiredReplicas", int64(obj.Status.DesiredReplicas))
}

// validateTarget checks what is scaled. One that was stored before its group had to be
// named stays as it is.
func validateTarget(obj, old *autoscalingv2.HorizontalPodAutoscaler, errs *resource.Errors) {
	ref, at := &obj.Spec.ScaleTargetRef, errs.At("spec.scaleTargetRef")
	validateReference(ref, at)
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	switch {
	case old != nil && old.Spec.ScaleTargetRef.APIVersion == ref.APIVersion:
	case err != nil:
		at.Invalid("apiVersion", ref.APIVersion, err.Error())
	case gv.Group == "" && ref.Kind != "ReplicationController": // the one of its group that can be scaled
		at.Invalid("apiVersion", ref.APIVersion, "apiVersion must specify API group")
	}
}

func validateReference(ref *autoscalingv2.CrossVersionObjectReference, errs *resource.Errors) {
	if ref.Kind == "" {
		errs.Required("kind", "")
	} else {
		errs.Refuse("kind", ref.Kind, path.IsValidPathSegmentName(ref.Kind))
	}
	if ref.Name == "" {
		errs.Required("name", "")
	} else {
		errs.Refuse("name", ref.Name, path.IsValidPathSegmentName(ref.Name))
	}
}

func validateRules(rules *autoscalingv2.HPAScalingRules, errs *resource.Errors) {
	if rules == nil {
		return
	}
	if w := rules.StabilizationWindowSeconds; w != nil && *w < 0 {
		errs.Invalid("stabilizationWindowSeconds", *w, "must be greater than or equal to zero")
	} else if w != nil && *w > 3600 {
		errs.Invalid("stabilizationWindowSeconds", *w, "must be less than or equal to 3600")
	}
	switch p := ptr.Deref(rules.SelectPolicy, autoscalingv2.MaxChangePolicySelect); p {
	case autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect:
	default:
		resource.NotSupported(errs, "selectPolicy", p, autoscalingv2.DisabledPolicySelect, autoscalingv2.MaxChangePolicySelect, autoscalingv2.MinChangePolicySelect)
	}
	if len(rules.Policies) == 0 {
		errs.Required("policies", "must specify at least one Policy")
	}
	for i := range rules.Policies {
		validatePolicy(&rules.Policies[i], errs.At("policies[%d]", i))
	}
	if rules.Tolerance != nil && rules.Tolerance.Sign() < 0 {
		errs.Invalid("tolerance", rules.Tolerance.String(), "must be greater than or equal to 0")
	}
}

func validatePolicy(p *autoscalingv2.HPAScalingPolicy, errs *resource.Errors) {
	if p.Type != autoscalingv2.PodsScalingPolicy && p.Type != autoscalingv2.PercentScalingPolicy {
		resource.NotSupported(errs, "type", p.Type, autoscalingv2.PercentScalingPolicy, autoscalingv2.PodsScalingPolicy)
	}
	if p.Value <= 0 {
		errs.Invalid("value", p.Value, "must be greater than zero")
	}
	if p.PeriodSeconds <= 0 {
		errs.Invalid("periodSeconds", p.PeriodSeconds, "must be greater than zero")
	}
	if p.PeriodSeconds > 1800 {
		errs.Invalid("periodSeconds", p.PeriodSeconds, "must be less than or equal to 1800")
	}
}

// metricSources are where the values of a metric of each type stand, in the order in
// which they are checked: only the first that is there is looked into.
var metricSources = []struct {
	of    autoscalingv2.MetricSourceType
	field string
	check func(m *autoscalingv2.MetricSpec, errs *resource.Errors) (there bool)
}{
	{autoscalingv2.ObjectMetricSourceType, "object", validateObjectSource},
	{autoscalingv2.ExternalMetricSourceType, "external", validateExternalSource},
	{autoscalingv2.PodsMetricSourceType, "pods", validatePodsSource},
	{autoscalingv2.ResourceMetricSourceType, "resource", validateResourceSource},
	{autoscalingv2.ContainerResourceMetricSourceType, "containerResource", validateContainerResourceSource},
}

func validateMetric(m *autoscalingv2.MetricSpec, errs *resource.Errors) {
	if m.Type == "" {
		errs.Required("type", "must specify a metric source type")
	}
	var there []string
	expected, missing := "", ""
	for _, s := range metricSources {
		at := errs.At("%s", s.field)
		if len(there) > 0 {
			at = resource.NewErrors() // not looked into
		}
		is := s.check(m, at)
		if is {
			there = append(there, s.field)
		}
		if s.of == m.Type {
			expected = s.field
			if !is {
				missing = s.field
			}
		}
	}
	if expected == "" {
		resource.NotSupported(errs, "type", m.Type, autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType,
			autoscalingv2.ObjectMetricSourceType, autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)
	}
	if missing != "" {
		errs.Required(missing, "must populate information for the given metric source")
	}
	for _, field := range there {
		if field != expected && len(there) > 1 {
			errs.Forbidden(field, "must populate the given metric source only")
		}
	}
}

func validateObjectSource(m *autoscalingv2.MetricSpec, errs *resource.Errors) bool {
	s := m.Object
	if s == nil {
		return false
	}
	validateReference(&s.DescribedObject, errs.At("describedObject"))
	if _, err := schema.ParseGroupVersion(s.DescribedObject.APIVersion); err != nil {
		errs.Invalid("describedObject.apiVersion", s.DescribedObject.APIVersion, err.Error())
	}
	validateIdentifier(&s.Metric, errs)
	validateMetricTarget(&s.Target, errs)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs.Required("target.averageValue", "must set either a target value or averageValue")
	}
	return true
}

func validateExternalSource(m *autoscalingv2.MetricSpec, errs *resource.Errors) bool {
	s := m.External
	if s == nil {
		return false
	}
	validateIdentifier(&s.Metric, errs)
	validateMetricTarget(&s.Target, errs)
	if s.Target.Value == nil && s.Target.AverageValue == nil {
		errs.Required("target.averageValue", "must set either a target value for metric or a per-pod target")
	}
	if s.Target.Value != nil && s.Target.AverageValue != nil {
		errs.Forbidden("target.value", "may not set both a target value for metric and a per-pod target")
	}
	return true
}

func validatePodsSource(m *autoscalingv2.MetricSpec, errs *resource.Errors) bool {
	s := m.Pods
	if s == nil {
		return false
	}
	validateIdentifier(&s.Metric, errs)
	validateMetricTarget(&s.Target, errs)
	if s.Target.AverageValue == nil {
		errs.Required("target.averageValue", "must specify a positive target averageValue")
	}
	return true
}

func validateResourceSource(m *autoscalingv2.MetricSpec, errs *resource.Errors) bool {
	s := m.Resource
	if s == nil {
		return false
	}
	if s.Name == "" {
		errs.Required("name", "must specify a resource name")
	}
	validateUtilization(&s.Target, errs)
	return true
}

func validateContainerResourceSource(m *autoscalingv2.MetricSpec, errs *resource.Errors) bool {
	s := m.ContainerResource
	if s == nil {
		return false
	}
	if s.Name == "" {
		errs.Required("name", "must specify a resource name")
	} else {
		check.ContainerResourceName(errs, "name", s.Name)
	}
	if s.Container == "" {
		errs.Required("container", "must specify a container")
	} else {
		check.DNSLabel(errs, "container", s.Container)
	}
	validateUtilization(&s.Target, errs)
	return true
}

// validateUtilization checks the target of a resource: a share of what was asked for or an
// amount.
func validateUtilization(t *autoscalingv2.MetricTarget, errs *resource.Errors) {
	validateMetricTarget(t, errs)
	if t.AverageUtilization == nil && t.AverageValue == nil {
		errs.Required("target.averageUtilization", "must set either a target raw value or a target utilization")
	}
	if t.AverageUtilization != nil && t.AverageValue != nil {
		errs.Forbidden("target.averageValue", "may not set both a target raw value and a target utilization")
	}
}

func validateMetricTarget(t *autoscalingv2.MetricTarget, errs *resource.Errors) {
	switch t.Type {
	case autoscalingv2.UtilizationMetricType, autoscalingv2.ValueMetricType, autoscalingv2.AverageValueMetricType:
	default:
		if t.Type == "" {
			errs.Required("target.type", "must specify a metric target type")
		}
		errs.Invalid("target.type", t.Type, "must be either Utilization, Value, or AverageValue")
	}
	if t.Value != nil && t.Value.Sign() != 1 {
		errs.Invalid("target.value", t.Value, "must be positive")
	}
	if t.AverageValue != nil && t.AverageValue.Sign() != 1 {
		errs.Invalid("target.averageValue", t.AverageValue, "must be positive")
	}
	if t.AverageUtilization != nil && *t.AverageUtilization < 1 {
		errs.Invalid("target.averageUtilization", *t.AverageUtilization, "must be greater than 0")
	}
}

func validateIdentifier(id *autoscalingv2.MetricIdentifier, errs *resource.Errors) {
	if id.Name == "" {
		errs.Required("metric.name", "must specify a metric name")
		return
	}
	errs.Refuse("metric.name", id.Name, path.IsValidPathSegmentName(id.Name))
}
