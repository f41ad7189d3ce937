package scheduling

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/operation"

	"github.com/kemudi/kemudi/internal/resource"
)

// Workloads are templates of groups of pods. Nothing here reads them: who makes the
// groups (a controller of people's own) copies from them.
var Workloads = resource.Define(resource.Spec[*schedulingv1beta1.Workload]{
	Names:         resource.Names{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "Workload", Plural: "workloads", Namespaced: true, OptIn: true},
	HasGeneration: true,
	Prepare:       prepareWorkload,
	Validate:      validateWorkload,
	Versions: []resource.Version[*schedulingv1beta1.Workload]{resource.SameWire[*schedulingv1alpha3.Workload](resource.Version[*schedulingv1beta1.Workload]{
		Group: "scheduling.k8s.io", Version: "v1alpha3",
	})},
})

// prepareWorkload takes away what belongs to features that are alpha in this
// version, unless it is there already.
func prepareWorkload(w, old *schedulingv1beta1.Workload) {
	if old == nil {
		old = &schedulingv1beta1.Workload{}
	}
	if len(old.Spec.CompositePodGroupTemplates) == 0 {
		w.Spec.CompositePodGroupTemplates = nil
	}
	had := map[string]bool{}
	for i := range old.Spec.PodGroupTemplates {
		t := &old.Spec.PodGroupTemplates[i]
		had[t.Name] = t.PreemptionPolicy != nil
	}
	for i := range w.Spec.PodGroupTemplates {
		if t := &w.Spec.PodGroupTemplates[i]; !had[t.Name] {
			t.PreemptionPolicy = nil
		}
	}
}

func validateWorkload(w, old *schedulingv1beta1.Workload, errs *resource.Errors) {
	generated(errs, w, old, func(op operation.Operation, obj, old *schedulingv1alpha3.Workload) {
		var was *schedulingv1alpha3.WorkloadSpec
		if old != nil {
			was = &old.Spec
		}
		enforce(errs, schedulingv1alpha3.Validate_WorkloadSpec(background, op, errs.Path("spec"), &obj.Spec, was))
	})
}
