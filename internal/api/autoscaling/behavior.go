package autoscaling

import (
	"encoding/json"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	quantity "k8s.io/apimachinery/pkg/api/resource"
)

// The versions before v2beta2 carry spec.behavior in an annotation, with the names of its
// fields as they are in Go.
type (
	behavior struct{ ScaleUp, ScaleDown *rules }
	rules    struct {
		StabilizationWindowSeconds *int32
		SelectPolicy               *autoscalingv2.ScalingPolicySelect
		Policies                   []policy
		Tolerance                  *quantity.Quantity
	}
	policy struct {
		Type                 autoscalingv2.HPAScalingPolicyType
		Value, PeriodSeconds int32
	}
)

func behaviorText(b *autoscalingv2.HorizontalPodAutoscalerBehavior) (string, error) {
	text, err := json.Marshal(behavior{rulesFrom(b.ScaleUp), rulesFrom(b.ScaleDown)})
	return string(text), err
}

// parseBehavior reads the annotation; nil if it is none.
func parseBehavior(text string) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	var b behavior
	if json.Unmarshal([]byte(text), &b) != nil {
		return nil
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: b.ScaleUp.to(), ScaleDown: b.ScaleDown.to()}
}

func rulesFrom(r *autoscalingv2.HPAScalingRules) *rules {
	if r == nil {
		return nil
	}
	out := &rules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, policy{p.Type, p.Value, p.PeriodSeconds})
	}
	return out
}

func (r *rules) to() *autoscalingv2.HPAScalingRules {
	if r == nil {
		return nil
	}
	out := &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: r.StabilizationWindowSeconds, SelectPolicy: r.SelectPolicy, Tolerance: r.Tolerance}
	for _, p := range r.Policies {
		out.Policies = append(out.Policies, autoscalingv2.HPAScalingPolicy{Type: p.Type, Value: p.Value, PeriodSeconds: p.PeriodSeconds})
	}
	return out
}
