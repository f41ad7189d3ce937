package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

var replicaSets = workload.Kind[*appsv1.ReplicaSet]{
	Template:    func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template },
	Selector:    func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector },
	SelectorDoc: appsv1.ReplicaSetSpec{}.SwaggerDoc()["selector"],
	Replicas:    func(rs *appsv1.ReplicaSet) **int32 { return &rs.Spec.Replicas },
	Current:     func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas },
	Named:       true,
}

// ReplicaSets keep a number of equal pods running.
var ReplicaSets = resource.Define(resource.Spec[*appsv1.ReplicaSet]{
	Names:         resource.Names{Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets", Short: []string{"rs"}, Categories: []string{"all"}, Namespaced: true},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(rs *appsv1.ReplicaSet) *corev1.PodSpec { return &rs.Spec.Template.Spec }),
	Default: func(rs *appsv1.ReplicaSet) {
		podspec.DefaultTemplate(&rs.Spec.Template)
		if rs.Spec.Replicas == nil {
			rs.Spec.Replicas = ptr.To[int32](1)
		}
	},
	Prepare: func(obj, old *appsv1.ReplicaSet) {
		podspec.DropUnsupported(&obj.Spec.Template.Spec)
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
	Warn: replicaSets.Warn,
	Columns: replicaSets.Columns([]resource.Column[*appsv1.ReplicaSet]{
		{Name: "Desired", Type: "integer", Description: appsv1.ReplicaSetSpec{}.SwaggerDoc()["replicas"], Value: func(rs *appsv1.ReplicaSet) any { return int64(ptr.Deref(rs.Spec.Replicas, 0)) }},
		{Name: "Current", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["replicas"], Value: func(rs *appsv1.ReplicaSet) any { return int64(rs.Status.Replicas) }},
		{Name: "Ready", Type: "integer", Description: appsv1.ReplicaSetStatus{}.SwaggerDoc()["readyReplicas"], Value: func(rs *appsv1.ReplicaSet) any { return int64(rs.Status.ReadyReplicas) }},
	}...),
	Fields: map[string]func(*appsv1.ReplicaSet) string{
		"status.replicas": func(rs *appsv1.ReplicaSet) string { return strconv.Itoa(int(rs.Status.Replicas)) },
	},
	Sub: []resource.Sub[*appsv1.ReplicaSet]{
		{
			Name:     "status",
			Merge:    func(obj, old *appsv1.ReplicaSet) { obj.Spec = old.Spec },
			Validate: validateReplicaSetStatus,
		},
		replicaSets.Scale(),
	},
	Versions: []resource.Version[*appsv1.ReplicaSet]{
		resource.SameWire[*appsv1beta2.ReplicaSet](resource.Version[*appsv1.ReplicaSet]{
			Group: "apps", Version: "v1beta2",
			Deprecated:         "apps/v1beta2 ReplicaSet is deprecated in v1.9+, unavailable in v1.16+; use apps/v1 ReplicaSet",
			DefaultPropagation: metav1.DeletePropagationOrphan,
			Sub:                []resource.Sub[*appsv1.ReplicaSet]{scaleV1beta2(replicaSets)},
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
			Sub:                []resource.Sub[*appsv1.ReplicaSet]{scaleExtensions(replicaSets)},
		}),
	},
})

func validateReplicaSetSpec(s *appsv1.ReplicaSetSpec, errs *resource.Errors) {
	errs.NonNegative("spec.replicas", int64(ptr.Deref(s.Replicas, 0)))
	errs.NonNegative("spec.minReadySeconds", int64(s.MinReadySeconds))
	// "deployment" is what clients know here, too.
	validateSelected("deployment", s.Selector, &s.Template, errs)
	validateTemplate(&s.Template, errs)
	workload.Endless("ReplicaSet", &s.Template, errs)
}

func validateReplicaSetStatus(obj, _ *appsv1.ReplicaSet, errs *resource.Errors) {
	s := &obj.Status
	errs.NonNegative("status.replicas", int64(s.Replicas))
	errs.NonNegative("status.fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	errs.NonNegative("status.readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative("status.availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	errs.NonNegative("status.terminatingReplicas", int64(ptr.Deref(s.TerminatingReplicas, 0)))
	errs.AtMost("status.fullyLabeledReplicas", s.FullyLabeledReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.readyReplicas", s.ReadyReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "readyReplicas", s.ReadyReplicas)
}
