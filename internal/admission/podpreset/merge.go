package podpreset

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/kemudi/kemudi/internal/api/settings"
)

// merge is what becomes of a pod by the presets: volumes are added to the pod, the
// rest to each of its containers, but not to those that run before them. What is there
// already, word for word, is not added again. The error names all that contradict each
// other; spec is not changed.
func merge(spec *corev1.PodSpec, presets []*settings.PodPreset) (*corev1.PodSpec, error) {
	out := *spec
	var errs []error
	out.Volumes = volumes.merge(spec.Volumes, presets, &errs)
	out.Containers = slices.Clone(spec.Containers)
	for i := range out.Containers {
		c := &out.Containers[i]
		c.Env = variables.merge(c.Env, presets, &errs)
		for _, p := range presets {
			c.EnvFrom = append(slices.Clip(c.EnvFrom), p.Spec.EnvFrom...)
		}
		c.VolumeMounts = mounts.merge(c.VolumeMounts, presets, &errs)
	}
	return &out, utilerrors.NewAggregate(errs)
}

// A list is a field that presets add to.
type list[T any] struct {
	name string // in errors
	of   func(s *settings.PodPresetSpec) []T
	keys []key[T] // the first is what tells one element from another
}

// A key is what only equal elements may have in common.
type key[T any] struct {
	name string // in errors
	of   func(*T) string
}

var (
	variables = list[corev1.EnvVar]{
		name: "env", of: func(s *settings.PodPresetSpec) []corev1.EnvVar { return s.Env },
		keys: []key[corev1.EnvVar]{{"", func(v *corev1.EnvVar) string { return v.Name }}},
	}
	volumes = list[corev1.Volume]{
		name: "volumes", of: func(s *settings.PodPresetSpec) []corev1.Volume { return s.Volumes },
		keys: []key[corev1.Volume]{{"", func(v *corev1.Volume) string { return v.Name }}},
	}
	mounts = list[corev1.VolumeMount]{
		name: "volume mounts", of: func(s *settings.PodPresetSpec) []corev1.VolumeMount { return s.VolumeMounts },
		keys: []key[corev1.VolumeMount]{
			{"", func(m *corev1.VolumeMount) string { return m.Name }},
			{"mount path ", func(m *corev1.VolumeMount) string { return m.MountPath }},
		},
	}
)

// merge adds what the presets have to own, which is not changed.
func (l *list[T]) merge(own []T, presets []*settings.PodPreset, errs *[]error) []T {
	out := slices.Clip(own)
	for _, p := range presets {
		add := l.of(&p.Spec)
		for i := range add {
			known := false
			for n, k := range l.keys {
				at := slices.IndexFunc(out, func(o T) bool { return k.of(&o) == k.of(&add[i]) })
				if at < 0 {
					continue
				}
				known = known || n == 0
				if !equality.Semantic.DeepEqual(out[at], add[i]) {
					*errs = append(*errs, fmt.Errorf("merging %s for %s has a conflict on %s%s: %s does not match %s in container",
						l.name, p.Name, k.name, k.of(&add[i]), text(add[i]), text(out[at])))
				}
			}
			if !known {
				out = append(out, add[i])
			}
		}
	}
	return out
}

// text shows an element as manifests have it.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
