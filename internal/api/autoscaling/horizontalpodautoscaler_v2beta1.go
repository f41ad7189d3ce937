package autoscaling

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/resource"
)

// AutoscalerV2beta1 is the HorizontalPodAutoscaler of autoscaling/v2beta1, which the
// libraries have dropped. Its metrics have the form that the annotations of
// autoscaling/v1 still have. It has no protobuf form.
type AutoscalerV2beta1 struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object's metadata.
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// How many replicas there may be, and by which metrics.
	Spec AutoscalerSpecV2beta1 `json:"spec,omitempty"`
	// How many there are, and what the metrics were.
	Status AutoscalerStatusV2beta1 `json:"status,omitempty"`
}

// AutoscalerSpecV2beta1 is what is wanted.
type AutoscalerSpecV2beta1 struct {
	// What is scaled.
	ScaleTargetRef autoscalingv1.CrossVersionObjectReference `json:"scaleTargetRef"`
	// The least number of replicas, 1 by default.
	MinReplicas *int32 `json:"minReplicas,omitempty"`
	// The greatest number of replicas.
	MaxReplicas int32 `json:"maxReplicas"`
	// The metrics that decide; the one that asks for most replicas does.
	// +listType=atomic
	Metrics []autoscalingv1.MetricSpec `json:"metrics,omitempty"`
}

// AutoscalerStatusV2beta1 is what is.
type AutoscalerStatusV2beta1 struct {
	// The generation of the object that this is about.
	ObservedGeneration *int64 `json:"observedGeneration,omitempty"`
	// When the number of replicas was changed last.
	LastScaleTime *metav1.Time `json:"lastScaleTime,omitempty"`
	// How many replicas there are.
	CurrentReplicas int32 `json:"currentReplicas"`
	// How many there are to be.
	DesiredReplicas int32 `json:"desiredReplicas"`
	// What the metrics were.
	// +listType=atomic
	CurrentMetrics []autoscalingv1.MetricStatus `json:"currentMetrics"`
	// Whether it can scale, and why not.
	// +listType=atomic
	Conditions []autoscalingv1.HorizontalPodAutoscalerCondition `json:"conditions"`
}

var _ resource.Object = (*AutoscalerV2beta1)(nil)

// DeepCopyObject returns a copy that shares nothing.
func (a *AutoscalerV2beta1) DeepCopyObject() runtime.Object {
	out := *a
	a.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.MinReplicas, out.Spec.Metrics = clone(a.Spec.MinReplicas), nil
	for i := range a.Spec.Metrics {
		out.Spec.Metrics = append(out.Spec.Metrics, *a.Spec.Metrics[i].DeepCopy())
	}
	out.Status.ObservedGeneration, out.Status.LastScaleTime = clone(a.Status.ObservedGeneration), a.Status.LastScaleTime.DeepCopy()
	out.Status.CurrentMetrics, out.Status.Conditions = nil, nil
	for i := range a.Status.CurrentMetrics {
		out.Status.CurrentMetrics = append(out.Status.CurrentMetrics, *a.Status.CurrentMetrics[i].DeepCopy())
	}
	for i := range a.Status.Conditions {
		out.Status.Conditions = append(out.Status.Conditions, *a.Status.Conditions[i].DeepCopy())
	}
	return &out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	return ptr.To(*p)
}

// OpenAPIModelName is the name of its schema.
func (AutoscalerV2beta1) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscaler"
}

// OpenAPIModelName is the name of its schema.
func (AutoscalerSpecV2beta1) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscalerSpec"
}

// OpenAPIModelName is the name of its schema.
func (AutoscalerStatusV2beta1) OpenAPIModelName() string {
	return "io.k8s.api.autoscaling.v2beta1.HorizontalPodAutoscalerStatus"
}

// autoscalerV2beta1 has all but the behavior, which is in an annotation.
var autoscalerV2beta1 = resource.Version[*autoscalingv2.HorizontalPodAutoscaler]{
	Group: "autoscaling", Version: "v2beta1",
	Deprecated: "autoscaling/v2beta1 HorizontalPodAutoscaler is deprecated in v1.22+, unavailable in v1.25+; use autoscaling/v2 HorizontalPodAutoscaler",
	New:        func() resource.Object { return &AutoscalerV2beta1{} },
	Default:    func(obj resource.Object) { defaultLeast(&obj.(*AutoscalerV2beta1).Spec.MinReplicas) },
	To: func(obj resource.Object) (*autoscalingv2.HorizontalPodAutoscaler, error) {
		return fromV2beta1(obj.(*AutoscalerV2beta1)), nil
	},
	From: func(a *autoscalingv2.HorizontalPodAutoscaler) (resource.Object, error) { return toV2beta1(a) },
}

func fromV2beta1(old *AutoscalerV2beta1) *autoscalingv2.HorizontalPodAutoscaler {
	a := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: old.ObjectMeta,
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference(old.Spec.ScaleTargetRef), MinReplicas: old.Spec.MinReplicas, MaxReplicas: old.Spec.MaxReplicas,
			Metrics: metricsTo(old.Spec.Metrics),
		},
		Status: autoscalingv2.HorizontalPodAutoscalerStatus{
			ObservedGeneration: old.Status.ObservedGeneration, LastScaleTime: old.Status.LastScaleTime,
			CurrentReplicas: old.Status.CurrentReplicas, DesiredReplicas: old.Status.DesiredReplicas,
			CurrentMetrics: currentTo(old.Status.CurrentMetrics), Conditions: conditionsTo(old.Status.Conditions),
		},
	}
	if text, ok := old.Annotations[behaviorAnnotation]; ok {
		a.Spec.Behavior = parseBehavior(text)
	}
	a.Annotations = withoutCarried(old.Annotations)
	return a
}

func toV2beta1(a *autoscalingv2.HorizontalPodAutoscaler) (*AutoscalerV2beta1, error) {
	old := &AutoscalerV2beta1{
		ObjectMeta: a.ObjectMeta,
		Spec: AutoscalerSpecV2beta1{
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference(a.Spec.ScaleTargetRef), MinReplicas: a.Spec.MinReplicas, MaxReplicas: a.Spec.MaxReplicas,
			Metrics: metricsFrom(a.Spec.Metrics),
		},
		Status: AutoscalerStatusV2beta1{
			ObservedGeneration: a.Status.ObservedGeneration, LastScaleTime: a.Status.LastScaleTime,
			CurrentReplicas: a.Status.CurrentReplicas, DesiredReplicas: a.Status.DesiredReplicas,
			CurrentMetrics: currentFrom(a.Status.CurrentMetrics), Conditions: conditionsFrom(a.Status.Conditions),
		},
	}
	var err error
	old.Annotations, err = carry(a)
	return old, err
}
