package dra

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/resource"
)

// DeviceTaintRules put a taint on the devices that they select, as if their driver had.
var DeviceTaintRules = resource.Define(resource.Spec[*resourcev1.DeviceTaintRule]{
	Names:         resource.Names{Group: "resource.k8s.io", Version: "v1", Kind: "DeviceTaintRule", Plural: "devicetaintrules"},
	HasGeneration: true,
	Update:        resource.UpdateNeedsRevision,
	Default:       func(r *resourcev1.DeviceTaintRule) { defaultTaint(&r.Spec.Taint) },
	Prepare:       prepareTaintRule,
	Validate:      validateTaintRule,
	Sub: []resource.Sub[*resourcev1.DeviceTaintRule]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge:    func(obj, old *resourcev1.DeviceTaintRule) { obj.Spec = old.Spec },
		Validate: validateTaintRuleStatus,
	}},
	Versions: []resource.Version[*resourcev1.DeviceTaintRule]{
		resource.SameWire[*resourcev1alpha3.DeviceTaintRule](resource.Version[*resourcev1.DeviceTaintRule]{
			Group: "resource.k8s.io", Version: "v1alpha3",
			Deprecated: "resource.k8s.io/v1alpha3 DeviceTaintRule is deprecated in v1.36+, unavailable in v1.39+",
		}),
		resource.SameWire[*resourcev1beta2.DeviceTaintRule](resource.Version[*resourcev1.DeviceTaintRule]{
			Group: "resource.k8s.io", Version: "v1beta2", OffByDefault: true,
			Deprecated: "resource.k8s.io/v1beta2 DeviceTaintRule is deprecated in v1.39+, unavailable in v1.42+",
		}),
	},
})

func prepareTaintRule(r, old *resourcev1.DeviceTaintRule) {
	if old == nil {
		r.Status = resourcev1.DeviceTaintRuleStatus{}
		return
	}
	r.Status = old.Status
	// The time is that of the effect: what is tolerated for a while is counted from it.
	if t := &r.Spec.Taint; t.Effect != old.Spec.Taint.Effect && t.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
		t.TimeAdded = now()
	}
}

func validateTaintRule(r, old *resourcev1.DeviceTaintRule, errs *resource.Errors) {
	if s := r.Spec.DeviceSelector; s != nil {
		at := errs.At("spec.deviceSelector")
		if s.Driver != nil {
			checkDriver(at, "driver", *s.Driver)
		}
		if s.Pool != nil {
			checkPool(at, "pool", *s.Pool)
		}
		if s.Device != nil {
			check.DNSLabel(at, "device", *s.Device)
		}
	}
	var oldTaint *resourcev1.DeviceTaint
	if old != nil {
		oldTaint = &old.Spec.Taint
	}
	checkTaint(errs.At("spec.taint"), &r.Spec.Taint, oldTaint)
}

func validateTaintRuleStatus(r, _ *resourcev1.DeviceTaintRule, errs *resource.Errors) {
	errs.Add(metavalidation.ValidateConditions(r.Status.Conditions, errs.Path("status.conditions"))...)
	atMost(errs, "status.conditions", len(r.Status.Conditions), resourcev1.DeviceTaintRuleStatusMaxConditions)
}

// now is the time as it is stored.
func now() *metav1.Time { return &metav1.Time{Time: time.Now().Truncate(time.Second)} }
