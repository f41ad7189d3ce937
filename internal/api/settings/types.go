package settings

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodPreset adds to pods, as they are made, what they need and do not say themselves.
type PodPreset struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Which pods get something, and what.
	Spec PodPresetSpec `json:"spec,omitempty"`
}

// PodPresetSpec is which pods get something, and what.
type PodPresetSpec struct {
	// The labels of the pods. Empty: all pods of the namespace.
	Selector metav1.LabelSelector `json:"selector,omitempty"`
	// Environment variables of all containers.
	// +listType=atomic
	Env []corev1.EnvVar `json:"env,omitempty"`
	// Where further environment variables of all containers come from.
	// +listType=atomic
	EnvFrom []corev1.EnvFromSource `json:"envFrom,omitempty"`
	// Volumes of the pod.
	// +listType=atomic
	Volumes []corev1.Volume `json:"volumes,omitempty"`
	// Where all containers see volumes.
	// +listType=atomic
	VolumeMounts []corev1.VolumeMount `json:"volumeMounts,omitempty"`
}

// DeepCopyObject returns a copy that shares nothing.
func (p *PodPreset) DeepCopyObject() runtime.Object {
	out := &PodPreset{TypeMeta: p.TypeMeta, ObjectMeta: *p.ObjectMeta.DeepCopy()}
	// A pod has all of it, and knows how to copy it.
	pod := corev1.PodSpec{Volumes: p.Spec.Volumes, Containers: []corev1.Container{{
		Env: p.Spec.Env, EnvFrom: p.Spec.EnvFrom, VolumeMounts: p.Spec.VolumeMounts,
	}}}
	parts := pod.DeepCopy()
	c := &parts.Containers[0]
	out.Spec = PodPresetSpec{
		Selector: *p.Spec.Selector.DeepCopy(), Env: c.Env, EnvFrom: c.EnvFrom, Volumes: parts.Volumes, VolumeMounts: c.VolumeMounts,
	}
	return out
}

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (PodPreset) OpenAPIModelName() string { return "io.k8s.api.settings.v1alpha1.PodPreset" }

// OpenAPIModelName is the name of the type in OpenAPI documents.
func (PodPresetSpec) OpenAPIModelName() string { return "io.k8s.api.settings.v1alpha1.PodPresetSpec" }
