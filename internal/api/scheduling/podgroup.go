package scheduling

import (
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/operation"

	"github.com/kemudi/kemudi/internal/resource"
)

// PodGroupFinalizer keeps a group as long as pods that are not over name it.
const PodGroupFinalizer = "scheduling.k8s.io/podgroup-protection"

// PodGroups are pods that the scheduler looks at together. What pods say of their group
// is kept only where these are served.
var PodGroups = resource.Define(resource.Spec[*schedulingv1beta1.PodGroup]{
	Names: resource.Names{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "PodGroup", Plural: "podgroups", Namespaced: true, OptIn: true},
	Default: func(g *schedulingv1beta1.PodGroup) {
		if g.Spec.DisruptionMode == nil {
			g.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
		}
	},
	HasGeneration: true,
	Prepare:       preparePodGroup,
	Validate:      validatePodGroup,
	Sub: []resource.Sub[*schedulingv1beta1.PodGroup]{{
		Name: "status", Keeps: resource.KeepsMetadata,
		Merge: func(obj, old *schedulingv1beta1.PodGroup) { obj.Spec = old.Spec },
		Validate: func(obj, old *schedulingv1beta1.PodGroup, errs *resource.Errors) {
			generated(errs, obj, old, func(op operation.Operation, obj, old *schedulingv1alpha3.PodGroup) {
				enforce(errs, schedulingv1alpha3.Validate_PodGroupStatus(background, op, errs.Path("status"), &obj.Status, statusOf(old)))
			})
		},
	}},
	Versions: []resource.Version[*schedulingv1beta1.PodGroup]{resource.SameWire[*schedulingv1alpha3.PodGroup](resource.Version[*schedulingv1beta1.PodGroup]{
		Group: "scheduling.k8s.io", Version: "v1alpha3",
	})},
})

// preparePodGroup takes away what belongs to features that are alpha in this
// version, unless it is there already.
func preparePodGroup(g, old *schedulingv1beta1.PodGroup) {
	if old == nil {
		old = &schedulingv1beta1.PodGroup{}
	}
	g.Status = old.Status
	if old.Spec.ParentCompositePodGroupName == nil {
		g.Spec.ParentCompositePodGroupName = nil
	}
	if old.Spec.PreemptionPolicy == nil {
		g.Spec.PreemptionPolicy = nil
	}
}

func validatePodGroup(g, old *schedulingv1beta1.PodGroup, errs *resource.Errors) {
	generated(errs, g, old, func(op operation.Operation, obj, old *schedulingv1alpha3.PodGroup) {
		enforce(errs, schedulingv1alpha3.Validate_PodGroupSpec(background, op, errs.Path("spec"), &obj.Spec, specOf(old)))
	})
}

func specOf(g *schedulingv1alpha3.PodGroup) *schedulingv1alpha3.PodGroupSpec {
	if g == nil {
		return nil
	}
	return &g.Spec
}

func statusOf(g *schedulingv1alpha3.PodGroup) *schedulingv1alpha3.PodGroupStatus {
	if g == nil {
		return nil
	}
	return &g.Status
}

// MinCount is how many pods of a group must have a place at the same time.
func MinCount(g *schedulingv1beta1.PodGroup) int {
	if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
		return int(gang.MinCount)
	}
	return 1
}

// TopologyKey is the label of nodes of which all pods of a group must have the same
// value; empty if the group is not bound so.
func TopologyKey(g *schedulingv1beta1.PodGroup) string {
	if c := g.Spec.SchedulingConstraints; c != nil && len(c.Topology) > 0 {
		return c.Topology[0].Key
	}
	return ""
}
