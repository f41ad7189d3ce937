package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	flowcontrolv1beta1 "k8s.io/api/flowcontrol/v1beta1"
	flowcontrolv1beta2 "k8s.io/api/flowcontrol/v1beta2"
	flowcontrolv1beta3 "k8s.io/api/flowcontrol/v1beta3"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// legacyLevels are the levels as older versions have them: zero shares mean none given there.
func legacyLevels() []resource.Version[*flowcontrolv1.PriorityLevelConfiguration] {
	v1beta3 := resource.SameWire[*flowcontrolv1beta3.PriorityLevelConfiguration](resource.Version[*flowcontrolv1.PriorityLevelConfiguration]{
		Group: Group, Version: "v1beta3",
		Deprecated: "flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration is deprecated in v1.29+, unavailable in v1.32+; use flowcontrol.apiserver.k8s.io/v1 PriorityLevelConfiguration",
		Default: func(obj resource.Object) {
			pl := obj.(*flowcontrolv1beta3.PriorityLevelConfiguration)
			if _, meant := pl.Annotations[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey]; !meant && pl.Spec.Limited != nil {
				defaultTo(&pl.Spec.Limited.NominalConcurrencyShares)
			}
		},
	})
	to, from := v1beta3.To, v1beta3.From
	v1beta3.To = func(obj resource.Object) (*flowcontrolv1.PriorityLevelConfiguration, error) {
		pl, err := to(obj)
		if err == nil && pl.Annotations != nil {
			delete(pl.Annotations, flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey)
		}
		return pl, err
	}
	// A zero that is meant is marked, so that it survives being written back.
	v1beta3.From = func(pl *flowcontrolv1.PriorityLevelConfiguration) (resource.Object, error) {
		out, err := from(pl)
		if err != nil || pl.Spec.Limited == nil || ptr.Deref(pl.Spec.Limited.NominalConcurrencyShares, 0) != 0 {
			return out, err
		}
		marks := out.GetAnnotations()
		if marks == nil {
			marks = map[string]string{}
		}
		marks[flowcontrolv1beta3.PriorityLevelPreserveZeroConcurrencySharesKey] = ""
		out.SetAnnotations(marks)
		return out, nil
	}
	return []resource.Version[*flowcontrolv1.PriorityLevelConfiguration]{
		v1beta3,
		resource.SameWire[*flowcontrolv1beta2.PriorityLevelConfiguration](resource.Version[*flowcontrolv1.PriorityLevelConfiguration]{
			Group: Group, Version: "v1beta2",
			Deprecated: "flowcontrol.apiserver.k8s.io/v1beta2 PriorityLevelConfiguration is deprecated in v1.26+, unavailable in v1.29+; use flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration",
			Default: func(obj resource.Object) {
				if l := obj.(*flowcontrolv1beta2.PriorityLevelConfiguration).Spec.Limited; l != nil {
					defaultTo(&l.AssuredConcurrencyShares)
				}
			},
		}),
		resource.SameWire[*flowcontrolv1beta1.PriorityLevelConfiguration](resource.Version[*flowcontrolv1.PriorityLevelConfiguration]{
			Group: Group, Version: "v1beta1",
			Deprecated: "flowcontrol.apiserver.k8s.io/v1beta1 PriorityLevelConfiguration is deprecated in v1.23+, unavailable in v1.26+; use flowcontrol.apiserver.k8s.io/v1beta3 PriorityLevelConfiguration",
			Default: func(obj resource.Object) {
				if l := obj.(*flowcontrolv1beta1.PriorityLevelConfiguration).Spec.Limited; l != nil {
					defaultTo(&l.AssuredConcurrencyShares)
				}
			},
		}),
	}
}

func defaultTo(shares *int32) {
	if *shares == 0 {
		*shares = defaultShares
	}
}
