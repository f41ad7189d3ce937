package apps

import (
	"maps"

	appsv1beta1 "k8s.io/api/apps/v1beta1"
	appsv1beta2 "k8s.io/api/apps/v1beta2"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// matchLabels is the selector as a map, where it can be written as one.
func (s scaled) matchLabels() map[string]string {
	if s.selector == nil || len(s.selector.MatchExpressions) > 0 {
		return nil
	}
	return s.selector.MatchLabels
}

// scaleV1beta1 is the scale subresource of apps/v1beta1.
func scaleV1beta1[T resource.Object](view func(T) scaled, set func(T, int32)) resource.Sub[T] {
	return resource.Sub[T]{
		Name: "scale",
		Body: &resource.Body{Group: "apps", Version: "v1beta1", Kind: "Scale", New: func() runtime.Object { return &appsv1beta1.Scale{} }},
		Get: func(obj T) runtime.Object {
			s := view(obj)
			return &appsv1beta1.Scale{
				ObjectMeta: s.scaleMeta(), Spec: appsv1beta1.ScaleSpec{Replicas: s.wanted()},
				Status: appsv1beta1.ScaleStatus{Replicas: s.current, Selector: s.matchLabels(), TargetSelector: s.query()},
			}
		},
		Set: func(obj T, body runtime.Object) error {
			set(obj, body.(*appsv1beta1.Scale).Spec.Replicas)
			return nil
		},
	}
}

// scaleV1beta2 is the scale subresource of apps/v1beta2.
func scaleV1beta2[T resource.Object](view func(T) scaled, set func(T, int32)) resource.Sub[T] {
	return resource.Sub[T]{
		Name: "scale",
		Body: &resource.Body{Group: "apps", Version: "v1beta2", Kind: "Scale", New: func() runtime.Object { return &appsv1beta2.Scale{} }},
		Get: func(obj T) runtime.Object {
			s := view(obj)
			return &appsv1beta2.Scale{
				ObjectMeta: s.scaleMeta(), Spec: appsv1beta2.ScaleSpec{Replicas: s.wanted()},
				Status: appsv1beta2.ScaleStatus{Replicas: s.current, Selector: s.matchLabels(), TargetSelector: s.query()},
			}
		},
		Set: func(obj T, body runtime.Object) error {
			set(obj, body.(*appsv1beta2.Scale).Spec.Replicas)
			return nil
		},
	}
}

// scaleExtensions is the scale subresource of extensions/v1beta1.
func scaleExtensions[T resource.Object](view func(T) scaled, set func(T, int32)) resource.Sub[T] {
	return resource.Sub[T]{
		Name: "scale",
		Body: &resource.Body{Group: "extensions", Version: "v1beta1", Kind: "Scale", New: func() runtime.Object { return &extensionsv1beta1.Scale{} }},
		Get: func(obj T) runtime.Object {
			s := view(obj)
			return &extensionsv1beta1.Scale{
				ObjectMeta: s.scaleMeta(), Spec: extensionsv1beta1.ScaleSpec{Replicas: s.wanted()},
				Status: extensionsv1beta1.ScaleStatus{Replicas: s.current, Selector: s.matchLabels(), TargetSelector: s.query()},
			}
		},
		Set: func(obj T, body runtime.Object) error {
			set(obj, body.(*extensionsv1beta1.Scale).Spec.Replicas)
			return nil
		},
	}
}
