package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

// PodTemplates is descriptions of pods that nothing makes pods of by itself.
var PodTemplates = resource.Define(resource.Spec[*corev1.PodTemplate]{
	Names:         resource.Names{Version: "v1", Kind: "PodTemplate", Plural: "podtemplates", Namespaced: true},
	Deletion:      resource.Deletion[*corev1.PodTemplate]{AnswersDeleted: true},
	HasGeneration: true,
	Needs:         podspec.NeedsGroups(func(t *corev1.PodTemplate) *corev1.PodSpec { return &t.Template.Spec }),
	Default:       func(t *corev1.PodTemplate) { podspec.DefaultTemplate(&t.Template) },
	Prepare:       func(t, _ *corev1.PodTemplate) { podspec.DropUnsupported(&t.Template.Spec) },
	Validate: func(t, _ *corev1.PodTemplate, errs *resource.Errors) {
		podspec.ValidateTemplate(&t.Template, errs.At("template"))
	},
	Warn:    func(t, _ *corev1.PodTemplate) []string { return podspec.WarnTemplate(&t.Template, "template") },
	Ageless: true,
	Columns: []resource.Column[*corev1.PodTemplate]{
		{
			Name: "Containers", Description: "Names of each container in the template.",
			Value: func(t *corev1.PodTemplate) any { return workload.ContainerNames(&t.Template) },
		},
		{
			Name: "Images", Description: "Images referenced by each container in the template.",
			Value: func(t *corev1.PodTemplate) any { return workload.ContainerImages(&t.Template) },
		},
		{
			Name: "Pod Labels", Description: "The labels for the pod template.",
			Value: func(t *corev1.PodTemplate) any { return formatLabels(t.Template.Labels) },
		},
	},
})
