package flowcontrol

import (
	"cmp"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"

	"github.com/kemudi/kemudi/internal/resource"
)

// defaultPrecedence is that of a schema that names none.
const defaultPrecedence = 1000

// FlowSchemas say which requests are of one kind, and which level they are of. What
// is checked is in flowschema_validate.go.
var FlowSchemas = resource.Define(resource.Spec[*flowcontrolv1.FlowSchema]{
	Names:         resource.Names{Group: Group, Version: "v1", Kind: "FlowSchema", Plural: "flowschemas"},
	HasGeneration: true,
	Default: func(fs *flowcontrolv1.FlowSchema) {
		if fs.Spec.MatchingPrecedence == 0 {
			fs.Spec.MatchingPrecedence = defaultPrecedence
		}
	},
	Prepare: func(obj, old *flowcontrolv1.FlowSchema) {
		if old == nil {
			obj.Status = flowcontrolv1.FlowSchemaStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: validateFlowSchema,
	Columns: []resource.Column[*flowcontrolv1.FlowSchema]{
		{Name: "PriorityLevel", Description: flowcontrolv1.PriorityLevelConfigurationReference{}.SwaggerDoc()["name"], Value: func(fs *flowcontrolv1.FlowSchema) any { return fs.Spec.PriorityLevelConfiguration.Name }},
		{Name: "MatchingPrecedence", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["matchingPrecedence"], Value: func(fs *flowcontrolv1.FlowSchema) any { return int64(fs.Spec.MatchingPrecedence) }},
		{Name: "DistinguisherMethod", Description: flowcontrolv1.FlowSchemaSpec{}.SwaggerDoc()["distinguisherMethod"], Value: func(fs *flowcontrolv1.FlowSchema) any {
			if fs.Spec.DistinguisherMethod == nil {
				return "<none>"
			}
			return string(fs.Spec.DistinguisherMethod.Type)
		}},
		resource.AgeColumn[*flowcontrolv1.FlowSchema](),
		{Name: "MissingPL", Description: "references a broken or non-existent PriorityLevelConfiguration", Value: func(fs *flowcontrolv1.FlowSchema) any {
			for _, c := range fs.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
					return string(c.Status)
				}
			}
			return "?"
		}},
	},
	Rows: resource.Rows[*flowcontrolv1.FlowSchema]{Order: func(a, b *flowcontrolv1.FlowSchema) int {
		return cmp.Or(cmp.Compare(a.Spec.MatchingPrecedence, b.Spec.MatchingPrecedence), cmp.Compare(a.Name, b.Name))
	}},
	Sub: []resource.Sub[*flowcontrolv1.FlowSchema]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(obj, old *flowcontrolv1.FlowSchema) { obj.Spec = old.Spec },
		Validate: func(obj, _ *flowcontrolv1.FlowSchema, errs *resource.Errors) { validateFlowSchemaStatus(obj, errs) },
	}},
	Versions: []resource.Version[*flowcontrolv1.FlowSchema]{
		resource.SameWire[*flowcontrolv1beta3.FlowSchema](resource.Version[*flowcontrolv1.FlowSchema]{
			Group: Group, Version: "v1beta3",
			Deprecated: "flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 FlowSchema",
		}),
		resource.SameWire[*flowcontrolv1beta2.FlowSchema](resource.Version[*flowcontrolv1.FlowSchema]{
			Group: Group, Version: "v1beta2",
			Deprecated: "flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema is deprecated in v1.26+, unavailable in v1.29+; use flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema",
		}),
		resource.SameWire[*flowcontrolv1beta1.FlowSchema](resource.Version[*flowcontrolv1.FlowSchema]{
			Group: Group, Version: "v1beta1",
			Deprecated: "flowcontrol.apiserver.k8s.io/v1beta1 FlowSchema is deprecated in v1.23+, unavailable in v1.26+; use flowcontrol.apiserver.k8s.io/v1beta3 FlowSchema",
		}),
	},
})
