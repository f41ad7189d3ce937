package settings

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core/check"
	"github.com/kemudi/kemudi/internal/api/core/podspec"
	"github.com/kemudi/kemudi/internal/resource"
)

// PodPresets is what pods get that have certain labels, when they are made. Their
// one version is an alpha one, so they are served only if --runtime-config says so.
var PodPresets = resource.Define(resource.Spec[*PodPreset]{
	Names: resource.Names{Group: "settings.k8s.io", Version: "v1alpha1", Kind: "PodPreset", Plural: "podpresets", Namespaced: true},
	Default: func(p *PodPreset) {
		podspec.DefaultParts(p.Spec.Volumes, p.Spec.Env)
	},
	Validate: validatePodPreset,
	Columns: []resource.Column[*PodPreset]{{
		Name: "Created At", Type: "date", Description: metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"],
		Value: func(p *PodPreset) any { return p.CreationTimestamp.UTC().Format(time.RFC3339) },
	}},
	Ageless: true,
})

func validatePodPreset(p, _ *PodPreset, errs *resource.Errors) {
	s := &p.Spec
	check.LabelSelector(errs, "spec.selector", &s.Selector)
	if s.Env == nil && s.EnvFrom == nil && s.Volumes == nil && s.VolumeMounts == nil {
		errs.Required("spec.volumes.env.envFrom.volumeMounts", "must specify at least one")
	}
	podspec.ValidateParts(errs.At("spec"), s.Volumes, &corev1.Container{Env: s.Env, EnvFrom: s.EnvFrom, VolumeMounts: s.VolumeMounts})
}
