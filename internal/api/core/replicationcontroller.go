package core

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

var replicationControllers = workload.Kind[*corev1.ReplicationController]{
	Template: func(rc *corev1.ReplicationController) *corev1.PodTemplateSpec { return rc.Spec.Template },
	Selector: func(rc *corev1.ReplicationController) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
	},
	SelectorDoc: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"],
	Replicas:    func(rc *corev1.ReplicationController) **int32 { return &rc.Spec.Replicas },
	Current:     func(rc *corev1.ReplicationController) int32 { return rc.Status.Replicas },
	Named:       true,
}

// ReplicationControllers is what ReplicaSets were before they were in apps.
var ReplicationControllers = resource.Define(resource.Spec[*corev1.ReplicationController]{
	Names: resource.Names{
		Version: "v1", Kind: "ReplicationController", Plural: "replicationcontrollers",
		Short: []string{"rc"}, Categories: []string{"all"}, Namespaced: true, StoragePrefix: "controllers",
	},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(controlledSpec),
	// Its pods stay when it is deleted, as they did before there was a choice.
	Deletion: resource.Deletion[*corev1.ReplicationController]{DefaultPropagation: metav1.DeletePropagationOrphan},
	Default:  defaultReplicationController, Prepare: prepareReplicationController, Validate: validateReplicationController,
	Warn: replicationControllers.Warn,
	Columns: replicationControllers.Columns(
		resource.Column[*corev1.ReplicationController]{
			Name: "Desired", Type: "integer", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"],
			Value: func(rc *corev1.ReplicationController) any { return int64(ptr.Deref(rc.Spec.Replicas, 0)) },
		},
		resource.Column[*corev1.ReplicationController]{
			Name: "Current", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"],
			Value: func(rc *corev1.ReplicationController) any { return int64(rc.Status.Replicas) },
		},
		resource.Column[*corev1.ReplicationController]{
			Name: "Ready", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"],
			Value: func(rc *corev1.ReplicationController) any { return int64(rc.Status.ReadyReplicas) },
		},
	),
	Fields: map[string]func(*corev1.ReplicationController) string{
		"status.replicas": func(rc *corev1.ReplicationController) string { return formatInt(rc.Status.Replicas) },
	},
	Sub: []resource.Sub[*corev1.ReplicationController]{
		{
			Name:  "status",
			Merge: func(rc, old *corev1.ReplicationController) { rc.Spec = old.Spec }, Validate: validateReplicationControllerStatus,
		},
		replicationControllers.Scale(),
	},
})

func defaultReplicationController(rc *corev1.ReplicationController) {
	if rc.Spec.Replicas == nil {
		rc.Spec.Replicas = ptr.To[int32](1)
	}
	t := rc.Spec.Template
	if t == nil {
		return
	}
	podspec.DefaultTemplate(t)
	if t.Labels != nil && len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = maps.Clone(t.Labels)
	}
	if t.Labels != nil && len(rc.Labels) == 0 {
		rc.Labels = maps.Clone(t.Labels)
	}
}

// controlledSpec is the spec of the pods; nil: the controller has no template.
func controlledSpec(rc *corev1.ReplicationController) *corev1.PodSpec {
	if rc.Spec.Template == nil {
		return nil
	}
	return &rc.Spec.Template.Spec
}

func prepareReplicationController(rc, old *corev1.ReplicationController) {
	if rc.Spec.Template != nil {
		podspec.DropUnsupported(&rc.Spec.Template.Spec)
	}
	rc.Status = corev1.ReplicationControllerStatus{}
	if old != nil {
		rc.Status = old.Status
	}
}

func validateReplicationController(rc, _ *corev1.ReplicationController, errs *resource.Errors) {
	s := &rc.Spec
	errs.NonNegative("spec.minReadySeconds", int64(s.MinReadySeconds))
	if len(s.Selector) == 0 {
		errs.Required("spec.selector", "")
	}
	if s.Replicas == nil {
		errs.Required("spec.replicas", "")
	} else {
		errs.NonNegative("spec.replicas", int64(*s.Replicas))
	}
	if s.Template == nil {
		errs.Required("spec.template", "")
		return
	}
	if len(s.Selector) > 0 && !labels.SelectorFromSet(s.Selector).Matches(labels.Set(s.Template.Labels)) {
		errs.Invalid("spec.template.metadata.labels", s.Template.Labels, "`selector` does not match template `labels`")
	}
	podspec.ValidateTemplate(s.Template, errs.At("spec.template"))
	workload.Endless("ReplicationController", s.Template, errs)
}

func validateReplicationControllerStatus(rc, _ *corev1.ReplicationController, errs *resource.Errors) {
	s := &rc.Status
	errs.NonNegative("status.replicas", int64(s.Replicas))
	errs.NonNegative("status.fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	errs.NonNegative("status.readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative("status.availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	errs.AtMost("status.fullyLabeledReplicas", s.FullyLabeledReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.readyReplicas", s.ReadyReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "status.replicas", s.Replicas)
	errs.AtMost("status.availableReplicas", s.AvailableReplicas, "readyReplicas", s.ReadyReplicas)
}
