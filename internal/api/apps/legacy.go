package apps

import (
	"maps"

	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core/workload"
	"github.com/kemudi/kemudi/internal/resource"
)

// defaultSelector selects the pods of the template where a selector is not
// given, and labels an object that has no labels like its pods, as the versions
// before apps/v1beta2 do.
func defaultSelector(meta *metav1.ObjectMeta, selector **metav1.LabelSelector, template *corev1.PodTemplateSpec) {
	if template.Labels == nil {
		return
	}
	if *selector == nil {
		*selector = &metav1.LabelSelector{MatchLabels: maps.Clone(template.Labels)}
	}
	if len(meta.Labels) == 0 {
		meta.Labels = maps.Clone(template.Labels)
	}
}

// scaleV1beta1 is the scale subresource of apps/v1beta1.
func scaleV1beta1[T resource.Object](k workload.Kind[T]) resource.Sub[T] {
	body := resource.Body{Group: "apps", Version: "v1beta1", Kind: "Scale", New: func() runtime.Object { return &appsv1beta1.Scale{} }}
	return workload.LegacyScale(k, body, func(v workload.View) *appsv1beta1.Scale {
		return &appsv1beta1.Scale{
			ObjectMeta: v.Meta, Spec: appsv1beta1.ScaleSpec{Replicas: v.Wanted},
			Status: appsv1beta1.ScaleStatus{Replicas: v.Current, Selector: v.MatchLabels, TargetSelector: v.Query},
		}
	}, func(s *appsv1beta1.Scale) int32 { return s.Spec.Replicas })
}

// scaleV1beta2 is the scale subresource of apps/v1beta2.
func scaleV1beta2[T resource.Object](k workload.Kind[T]) resource.Sub[T] {
	body := resource.Body{Group: "apps", Version: "v1beta2", Kind: "Scale", New: func() runtime.Object { return &appsv1beta2.Scale{} }}
	return workload.LegacyScale(k, body, func(v workload.View) *appsv1beta2.Scale {
		return &appsv1beta2.Scale{
			ObjectMeta: v.Meta, Spec: appsv1beta2.ScaleSpec{Replicas: v.Wanted},
			Status: appsv1beta2.ScaleStatus{Replicas: v.Current, Selector: v.MatchLabels, TargetSelector: v.Query},
		}
	}, func(s *appsv1beta2.Scale) int32 { return s.Spec.Replicas })
}

// scaleExtensions is the scale subresource of extensions/v1beta1.
func scaleExtensions[T resource.Object](k workload.Kind[T]) resource.Sub[T] {
	body := resource.Body{Group: "extensions", Version: "v1beta1", Kind: "Scale", New: func() runtime.Object { return &extensionsv1beta1.Scale{} }}
	return workload.LegacyScale(k, body, func(v workload.View) *extensionsv1beta1.Scale {
		return &extensionsv1beta1.Scale{
			ObjectMeta: v.Meta, Spec: extensionsv1beta1.ScaleSpec{Replicas: v.Wanted},
			Status: extensionsv1beta1.ScaleStatus{Replicas: v.Current, Selector: v.MatchLabels, TargetSelector: v.Query},
		}
	}, func(s *extensionsv1beta1.Scale) int32 { return s.Spec.Replicas })
}
