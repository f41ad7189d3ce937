package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// ReplicaSets keep a number of equal pods running.
var ReplicaSets = resource.Define(resource.Spec[*appsv1.ReplicaSet]{
	Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets",
	Short: []string{"rs"}, Categories: []string{"all"}, Namespaced: true, HasGeneration: true,
	Default: func(rs *appsv1.ReplicaSet) {
		core.DefaultPodTemplateSpec(&rs.Spec.Template)
		if rs.Spec.Replicas == nil {
			rs.Spec.Replicas = ptr.To[int32](1)
		}
	},
	Prepare: func(obj, old *appsv1.ReplicaSet) {
		core.DropUnsupportedTemplateFields(&obj.Spec.Template)
		if old == nil {
			obj.Status = appsv1.ReplicaSetStatus{}
			return
		}
		obj.Status = old.Status
	},
	Validate: func(obj, old *appsv1.ReplicaSet, errs *resource.Errors) {
		validateReplicaSetSpec(&obj.Spec, errs)
		if old != nil {
			validateSameSelector(obj.Spec.Selector, old.Spec.Selector, errs)
		}
	},
	Warn: func(obj, old *appsv1.ReplicaSet) []string {
		if old == nil {
			return append(warnPodNames(obj.Name), warnTemplate(obj, nil, &obj.Spec.Template)...)
		}
		return warnTemplate(obj, old, &obj.Spec.Template)
	},
	Columns: []resource.Column[*appsv1.ReplicaSet]{
		{Name: "Desired", Type: "integer", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"], Value: func(rs *appsv1.ReplicaSet) any { return int64(ptr.Deref(rs.Spec.Replicas, 0)) }},
		{Name: "Current", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"], Value: func(rs *appsv1.ReplicaSet) any { return int64(rs.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"], Value: func(rs *appsv1.ReplicaSet) any { return int64(rs.Status.ReadyReplicas) }},
		{Name: "Containers", Priority: 1, Description: "Names of each container in the template.", Value: func(rs *appsv1.ReplicaSet) any { return containerNames(&rs.Spec.Template) }},
		{Name: "Images", Priority: 1, Description: "Images referenced by each container in the template.", Value: func(rs *appsv1.ReplicaSet) any { return containerImages(&rs.Spec.Template) }},
		{Name: "Selector", Priority: 1, Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"], Value: func(rs *appsv1.ReplicaSet) any { return metav1.FormatLabelSelector(rs.Spec.Selector) }},
	},
	Fields: map[string]func(*appsv1.ReplicaSet) string{
		"status.replicas": func(rs *appsv1.ReplicaSet) string { return strconv.Itoa(int(rs.Status.Replicas)) },
	},
	Sub: []resource.Sub[*appsv1.ReplicaSet]{
		{
			Name:     "status",
			Merge:    func(obj, old *appsv1.ReplicaSet) { obj.Spec = old.Spec },
			Validate: validateReplicaSetStatus,
		},
		resource.Scale(func(rs *appsv1.ReplicaSet) *autoscalingv1.Scale { return viewReplicaSet(rs).scale() }, setReplicaSetReplicas),
	},
	Versions: []resource.Version[*appsv1.ReplicaSet]{
		resource.SameWire[*appsv1beta2.ReplicaSet](resource.Version[*appsv1.ReplicaSet]{
			Group: "apps", Version: "v1beta2",
			Deprecated:         "apps/v1beta2 ReplicaSet is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 ReplicaSet",
			DefaultPropagation: metav1.DeletePropagationOrphan,
			OwnSub:             []resource.Sub[*appsv1.ReplicaSet]{scaleV1beta2(viewReplicaSet, setReplicaSetReplicas)},
		}),
		resource.SameWire[*extensionsv1beta1.ReplicaSet](resource.Version[*appsv1.ReplicaSet]{
			Group: "extensions", Version: "v1beta1",
			Deprecated: "extensions/v1beta1 ReplicaSet is deprecated in v1.8+, unavailable in v1.16+; use apps/v1 ReplicaSet",
			Default: func(obj resource.Object) {
				rs := obj.(*extensionsv1beta1.ReplicaSet)
				defaultSelector(&rs.ObjectMeta, &rs.Spec.Selector, &rs.Spec.Template)
			},
			// The selector may be changed in this version.
			Validate:           func(obj, _ *appsv1.ReplicaSet, errs *resource.Errors) { validateReplicaSetSpec(&obj.Spec, errs) },
			DefaultPropagation: metav1.DeletePropagationOrphan,
			OwnSub:             []resource.Sub[*appsv1.ReplicaSet]{scaleExtensions(viewReplicaSet, setReplicaSetReplicas)},
		}),
	},
})

func validateReplicaSetSpec(s *appsv1.ReplicaSetSpec, errs *resource.Errors) {
	errs.NonNegative("spec.replicas", int64(ptr.Deref(s.Replicas, 0)))
	errs.NonNegative("spec.minReadySeconds", int64(s.MinReadySeconds))
	// "deployment" is what clients know here, too.
	validateSelected("deployment", s.Selector, &s.Template, errs)
	validateTemplate(&s.Template, errs)
	validateEndless("ReplicaSet", &s.Template, errs)
}

func validateReplicaSetStatus(obj, _ *appsv1.ReplicaSet, errs *resource.Errors) {
	s := &obj.Status
	errs.NonNegative("status.replicas", int64(s.Replicas))
	errs.NonNegative("status.fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	errs.NonNegative("status.readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative("status.availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	errs.NonNegative("status.terminatingReplicas", int64(ptr.Deref(s.TerminatingReplicas, 0)))
	if s.FullyLabeledReplicas > s.Replicas {
		errs.Invalid("status.fullyLabeledReplicas", s.FullyLabeledReplicas, "cannot be greater than status.replicas")
	}
	if s.ReadyReplicas > s.Replicas {
		errs.Invalid("status.readyReplicas", s.ReadyReplicas, "cannot be greater than status.replicas")
	}
	if s.AvailableReplicas > s.Replicas {
		errs.Invalid("status.availableReplicas", s.AvailableReplicas, "cannot be greater than status.replicas")
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs.Invalid("status.availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
}

func viewReplicaSet(rs *appsv1.ReplicaSet) scaled {
	return scaled{&rs.ObjectMeta, rs.Spec.Replicas, rs.Status.Replicas, rs.Spec.Selector}
}

func setReplicaSetReplicas(rs *appsv1.ReplicaSet, n int32) { rs.Spec.Replicas = &n }
