package core

import (
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// ReplicationControllers is what ReplicaSets were before they were in apps.
var ReplicationControllers = resource.Define(resource.Spec[*corev1.ReplicationController]{
	Version: "v1", Kind: "ReplicationController", Plural: "replicationcontrollers", Short: []string{"rc"}, Categories: []string{"all"},
	Namespaced: true, StoragePrefix: "controllers", HasGeneration: true,
	// Its pods stay when it is deleted, as they did before there was a choice.
	DefaultPropagation: metav1.DeletePropagationOrphan,
	Default:            defaultReplicationController, Prepare: prepareReplicationController, Validate: validateReplicationController,
	Warn: func(rc, _ *corev1.ReplicationController) []string {
		if rc.Spec.Template == nil {
			return nil
		}
		return podspec.WarnTemplate(rc.Spec.Template, "spec.template")
	},
	Columns: replicationControllerColumns,
	Fields: map[string]func(*corev1.ReplicationController) string{
		"status.replicas": func(rc *corev1.ReplicationController) string { return formatInt(rc.Status.Replicas) },
	},
	Sub: []resource.Sub[*corev1.ReplicationController]{
		{
			Name:  "status",
			Merge: func(rc, old *corev1.ReplicationController) { rc.Spec = old.Spec }, Validate: validateReplicationControllerStatus,
		},
		resource.Scale(replicationControllerScale, func(rc *corev1.ReplicationController, n int32) { rc.Spec.Replicas = &n }),
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

func prepareReplicationController(rc, old *corev1.ReplicationController) {
	if rc.Spec.Template != nil {
		DropUnsupportedTemplateFields(rc.Spec.Template)
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
	if s.Template.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		resource.NotSupported(errs, "spec.template.spec.restartPolicy", s.Template.Spec.RestartPolicy, corev1.RestartPolicyAlways)
	}
	if s.Template.Spec.ActiveDeadlineSeconds != nil {
		errs.Forbidden("spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in ReplicationController is not Supported")
	}
}

func validateReplicationControllerStatus(rc, _ *corev1.ReplicationController, errs *resource.Errors) {
	s := &rc.Status
	errs.NonNegative("status.replicas", int64(s.Replicas))
	errs.NonNegative("status.fullyLabeledReplicas", int64(s.FullyLabeledReplicas))
	errs.NonNegative("status.readyReplicas", int64(s.ReadyReplicas))
	errs.NonNegative("status.availableReplicas", int64(s.AvailableReplicas))
	errs.NonNegative("status.observedGeneration", s.ObservedGeneration)
	const detail = "cannot be greater than status.replicas"
	if s.FullyLabeledReplicas > s.Replicas {
		errs.Invalid("status.fullyLabeledReplicas", s.FullyLabeledReplicas, detail)
	}
	if s.ReadyReplicas > s.Replicas {
		errs.Invalid("status.readyReplicas", s.ReadyReplicas, detail)
	}
	if s.AvailableReplicas > s.Replicas {
		errs.Invalid("status.availableReplicas", s.AvailableReplicas, detail)
	}
	if s.AvailableReplicas > s.ReadyReplicas {
		errs.Invalid("status.availableReplicas", s.AvailableReplicas, "cannot be greater than readyReplicas")
	}
}

func replicationControllerScale(rc *corev1.ReplicationController) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: rc.Name, Namespace: rc.Namespace, UID: rc.UID,
			ResourceVersion: rc.ResourceVersion, CreationTimestamp: rc.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: ptr.Deref(rc.Spec.Replicas, 0)},
		Status: autoscalingv1.ScaleStatus{Replicas: rc.Status.Replicas, Selector: labels.SelectorFromSet(rc.Spec.Selector).String()},
	}
}

var replicationControllerColumns = []resource.Column[*corev1.ReplicationController]{
	{
		Name: "Desired", Type: "integer", Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["replicas"],
		Value: func(rc *corev1.ReplicationController) any { return int64(ptr.Deref(rc.Spec.Replicas, 0)) },
	},
	{
		Name: "Current", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["replicas"],
		Value: func(rc *corev1.ReplicationController) any { return int64(rc.Status.Replicas) },
	},
	{
		Name: "Ready", Type: "integer", Description: corev1.ReplicationControllerStatus{}.SwaggerDoc()["readyReplicas"],
		Value: func(rc *corev1.ReplicationController) any { return int64(rc.Status.ReadyReplicas) },
	},
	{
		Name: "Containers", Priority: 1, Description: "Names of each container in the template.",
		Value: func(rc *corev1.ReplicationController) any {
			return containerNames(ptr.Deref(rc.Spec.Template, corev1.PodTemplateSpec{}).Spec.Containers)
		},
	},
	{
		Name: "Images", Priority: 1, Description: "Images referenced by each container in the template.",
		Value: func(rc *corev1.ReplicationController) any {
			return containerImages(ptr.Deref(rc.Spec.Template, corev1.PodTemplateSpec{}).Spec.Containers)
		},
	},
	{
		Name: "Selector", Priority: 1, Description: corev1.ReplicationControllerSpec{}.SwaggerDoc()["selector"],
		Value: func(rc *corev1.ReplicationController) any { return formatLabels(rc.Spec.Selector) },
	},
}
