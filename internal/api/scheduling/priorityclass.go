package scheduling

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// HighestUserPriority is the largest value a class outside the system may have.
const HighestUserPriority = 1_000_000_000

// PriorityClasses name pod priorities. That only one of them is the default for
// all pods is for admission to see.
var PriorityClasses = resource.Define(resource.Spec[*schedulingv1.PriorityClass]{
	Names:         resource.Names{Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass", Plural: "priorityclasses", Short: []string{"pc"}},
	HasGeneration: true,
	Default: func(pc *schedulingv1.PriorityClass) {
		if pc.PreemptionPolicy == nil {
			pc.PreemptionPolicy = ptr.To(corev1.PreemptLowerPriority)
		}
	},
	Validate: validatePriorityClass,
	Columns: []resource.Column[*schedulingv1.PriorityClass]{
		{Name: "Value", Type: "integer", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["value"], Value: func(pc *schedulingv1.PriorityClass) any { return int64(pc.Value) }},
		{Name: "Global-Default", Type: "boolean", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["globalDefault"], Value: func(pc *schedulingv1.PriorityClass) any { return pc.GlobalDefault }},
		resource.AgeColumn[*schedulingv1.PriorityClass](),
		{Name: "PreemptionPolicy", Description: schedulingv1.PriorityClass{}.SwaggerDoc()["preemptionPolicy"], Value: func(pc *schedulingv1.PriorityClass) any {
			return string(ptr.Deref(pc.PreemptionPolicy, ""))
		}},
	},
	Versions: []resource.Version[*schedulingv1.PriorityClass]{resource.SameWire[*schedulingv1beta1.PriorityClass](resource.Version[*schedulingv1.PriorityClass]{
		Group: "scheduling.k8s.io", Version: "v1beta1",
		Deprecated: "scheduling.k8s.io/v1beta1 PriorityClass is deprecated in v1.14+, unavailable in v1.22+; use scheduling.k8s.io/v1 PriorityClass",
	})},
})

func validatePriorityClass(obj, old *schedulingv1.PriorityClass, errs *resource.Errors) {
	switch {
	case strings.HasPrefix(obj.Name, "system-"):
		if err := checkSystemClass(obj); err != nil {
			errs.Forbidden("metadata.name", "priority class names with 'system-' prefix are reserved for system use only. error: "+err.Error())
		}
	case obj.Value > HighestUserPriority:
		errs.Forbidden("value", fmt.Sprintf("maximum allowed value of a user defined priority is %d", HighestUserPriority))
	}
	switch p := ptr.Deref(obj.PreemptionPolicy, ""); p {
	case corev1.PreemptLowerPriority, corev1.PreemptNever:
	case "":
		errs.Required("preemptionPolicy", "")
	default:
		resource.NotSupported(errs, "preemptionPolicy", p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if old == nil {
		return
	}
	if obj.Value != old.Value {
		errs.Forbidden("value", "may not be changed in an update.")
	}
	if ptr.Deref(obj.PreemptionPolicy, "") != ptr.Deref(old.PreemptionPolicy, "") {
		errs.Immutable("preemptionPolicy", obj.PreemptionPolicy)
	}
}

// SystemClasses are the classes of the pods that a cluster cannot do without.
// They are always there and cannot be made otherwise.
func SystemClasses() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, description string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description,
			PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
		}
	}
	return []*schedulingv1.PriorityClass{
		class("system-node-critical", 2_000_001_000, "Used for system critical pods that must not be moved from their current node."),
		class("system-cluster-critical", 2_000_000_000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	}
}

// checkSystemClass tells how a class differs from the system's of its name.
func checkSystemClass(pc *schedulingv1.PriorityClass) error {
	for _, s := range SystemClasses() {
		switch {
		case s.Name != pc.Name:
		case s.Value != pc.Value:
			return fmt.Errorf("value of %s PriorityClass must be %d", s.Name, s.Value)
		case s.GlobalDefault != pc.GlobalDefault:
			return fmt.Errorf("globalDefault of %s PriorityClass must be %t", s.Name, s.GlobalDefault)
		default:
			return nil
		}
	}
	return fmt.Errorf("%s is not a known system priority class", pc.Name)
}
