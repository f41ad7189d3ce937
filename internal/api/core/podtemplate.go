package core

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// PodTemplates is descriptions of pods that nothing makes pods of by itself.
var PodTemplates = resource.Define(resource.Spec[*corev1.PodTemplate]{
	Version: "v1", Kind: "PodTemplate", Plural: "podtemplates", Namespaced: true,
	HasGeneration: true,
	Default:       func(t *corev1.PodTemplate) { podspec.DefaultTemplate(&t.Template) },
	Prepare:       func(t, _ *corev1.PodTemplate) { DropUnsupportedTemplateFields(&t.Template) },
	Validate: func(t, _ *corev1.PodTemplate, errs *resource.Errors) {
		podspec.ValidateTemplate(&t.Template, errs.At("template"))
	},
	Warn:  func(t, _ *corev1.PodTemplate) []string { return podspec.WarnTemplate(&t.Template, "template") },
	NoAge: true,
	Columns: []resource.Column[*corev1.PodTemplate]{
		{
			Name: "Containers", Description: "Names of each container in the template.",
			Value: func(t *corev1.PodTemplate) any { return containerNames(t.Template.Spec.Containers) },
		},
		{
			Name: "Images", Description: "Images referenced by each container in the template.",
			Value: func(t *corev1.PodTemplate) any { return containerImages(t.Template.Spec.Containers) },
		},
		{
			Name: "Pod Labels", Description: "The labels for the pod template.",
			Value: func(t *corev1.PodTemplate) any { return formatLabels(t.Template.Labels) },
		},
	},
})

// DefaultPodTemplateSpec fills the unset fields of a pod template, in every kind
// that has one.
func DefaultPodTemplateSpec(t *corev1.PodTemplateSpec) { podspec.DefaultTemplate(t) }

// ValidatePodTemplateSpec checks a pod template, in every kind that has one. errs
// must be at the template.
func ValidatePodTemplateSpec(t *corev1.PodTemplateSpec, errs *resource.Errors) {
	podspec.ValidateTemplate(t, errs)
}

// DropUnsupportedTemplateFields takes away fields of features that are alpha in
// this version, as kinds with a pod template do in Prepare.
func DropUnsupportedTemplateFields(t *corev1.PodTemplateSpec) { podspec.DropUnsupported(&t.Spec) }

// PodTemplateWarnings says what pods of a template will hardly want. at is the
// path of the template ("spec.template").
func PodTemplateWarnings(t *corev1.PodTemplateSpec, at string) []string {
	return podspec.WarnTemplate(t, at)
}

func containerNames(containers []corev1.Container) string {
	names := make([]string, len(containers))
	for i := range containers {
		names[i] = containers[i].Name
	}
	return strings.Join(names, ",")
}

func containerImages(containers []corev1.Container) string {
	images := make([]string, len(containers))
	for i := range containers {
		images[i] = containers[i].Image
	}
	return strings.Join(images, ",")
}
