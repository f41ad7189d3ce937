package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/resource"
)

// ComponentStatuses tell whether the parts of the control plane are well. They are made
// when somebody asks.
var ComponentStatuses = resource.Define(resource.Spec[*corev1.ComponentStatus]{
	Names:    resource.Names{Version: "v1", Kind: "ComponentStatus", Plural: "componentstatuses", Short: []string{"cs"}, Deprecated: "v1 ComponentStatus is deprecated in v1.19+"},
	Computed: true,
	Ageless:  true,
	Columns: []resource.Column[*corev1.ComponentStatus]{
		{Name: "Status", Description: "Status of the component conditions", Value: func(s *corev1.ComponentStatus) any {
			switch c := healthy(s); c.Status {
			case corev1.ConditionTrue:
				return "Healthy"
			case "":
				return "Unknown"
			default:
				return "Unhealthy"
			}
		}},
		{Name: "Message", Description: "Message of the component conditions", Value: func(s *corev1.ComponentStatus) any { return healthy(s).Message }},
		{Name: "Error", Description: "Error of the component conditions", Value: func(s *corev1.ComponentStatus) any { return healthy(s).Error }},
	},
})

// healthy is the condition that says whether a component is well; a blank one: nothing does.
func healthy(s *corev1.ComponentStatus) corev1.ComponentCondition {
	for _, c := range s.Conditions {
		if c.Type == corev1.ComponentHealthy {
			return c
		}
	}
	return corev1.ComponentCondition{}
}
