package workload

import (
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/resource"
)

// Scale is the scale subresource over autoscaling/v1.
func (k Kind[T]) Scale() resource.Sub[T] {
	return resource.Scale(func(obj T) *autoscalingv1.Scale {
		v := k.view(obj)
		return &autoscalingv1.Scale{
			ObjectMeta: v.Meta,
			Spec:       autoscalingv1.ScaleSpec{Replicas: v.Wanted},
			Status:     autoscalingv1.ScaleStatus{Replicas: v.Current, Selector: v.Query},
		}
	}, k.setReplicas)
}

// View is the part of a workload that a Scale of any version shows.
type View struct {
	Meta            metav1.ObjectMeta
	Wanted, Current int32
	// Query is the selector as a query parameter has it, MatchLabels the selector
	// as a map, or nil where it cannot be written as one.
	Query       string
	MatchLabels map[string]string
}

// LegacyScale is the scale subresource of one of the groups that had a Scale of
// their own: S, made of a view by from. wanted reads what a client wrote.
func LegacyScale[T resource.Object, S runtime.Object](k Kind[T], body resource.Body, from func(View) S, wanted func(S) int32) resource.Sub[T] {
	return resource.Sub[T]{
		Name: "scale",
		Body: &body,
		Get:  func(obj T) runtime.Object { return from(k.view(obj)) },
		Set: func(obj T, body runtime.Object) error {
			k.setReplicas(obj, wanted(body.(S)))
			return nil
		},
	}
}

func (k Kind[T]) setReplicas(obj T, n int32) { *k.Replicas(obj) = &n }

func (k Kind[T]) view(obj T) View {
	v := View{
		Meta: metav1.ObjectMeta{
			Name: obj.GetName(), Namespace: obj.GetNamespace(), UID: obj.GetUID(),
			ResourceVersion: obj.GetResourceVersion(), CreationTimestamp: obj.GetCreationTimestamp(),
		},
		Current: k.Current(obj),
	}
	if n := *k.Replicas(obj); n != nil {
		v.Wanted = *n
	}
	s := k.Selector(obj)
	if parsed, err := metav1.LabelSelectorAsSelector(s); err == nil {
		v.Query = parsed.String()
	}
	if s != nil && len(s.MatchExpressions) == 0 {
		v.MatchLabels = s.MatchLabels
	}
	return v
}
