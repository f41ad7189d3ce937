package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// Given are the objects that a server brings along.
type Given struct {
	Schemas []*flowcontrolv1.FlowSchema
	Levels  []*flowcontrolv1.PriorityLevelConfiguration
}

// Mandatory are those without which a server does not know what to do with a request: they
// are kept as they are, and made again. The objects are shared.
func Mandatory() Given {
	return Given{bootstrap.MandatoryFlowSchemas, bootstrap.MandatoryPriorityLevelConfigurations}
}

// Suggested are those that people may change and remove. The objects are shared.
func Suggested() Given {
	return Given{bootstrap.SuggestedFlowSchemas, bootstrap.SuggestedPriorityLevelConfigurations}
}

func mandatorySchema(name string) *flowcontrolv1.FlowSchema {
	for _, fs := range bootstrap.MandatoryFlowSchemas {
		if fs.Name == name {
			return fs
		}
	}
	return nil
}

func mandatoryLevel(name string) *flowcontrolv1.PriorityLevelConfiguration {
	for _, pl := range bootstrap.MandatoryPriorityLevelConfigurations {
		if pl.Name == name {
			return pl
		}
	}
	return nil
}

// SameSchema reports whether a schema that is there has the spec of one that was given.
func SameSchema(is, given *flowcontrolv1.FlowSchema) bool {
	return equality.Semantic.DeepEqual(is.Spec, given.Spec)
}

// SameLevel reports whether a level that is there has the spec of one that was given; the
// shares of what is exempt are anybody's to choose.
func SameLevel(is, given *flowcontrolv1.PriorityLevelConfiguration) bool {
	has := is.Spec
	if is.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt && has.Exempt != nil {
		has.Exempt = given.Spec.Exempt
	}
	return equality.Semantic.DeepEqual(has, given.Spec)
}
