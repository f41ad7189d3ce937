package custom

import (
	"fmt"
	"reflect"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kemudi/kemudi/internal/resource"
)

// Scale says where objects have what the subresource scale shows, as ".spec.replicas".
type Scale struct {
	SpecReplicas, StatusReplicas string
	LabelSelector                string // empty: there is none
}

// path are the names in a path such as ".spec.replicas".
func path(of string) []string { return strings.Split(strings.TrimPrefix(of, "."), ".") }

func (s *Scale) replicas(o *Object) int64 {
	n, _, _ := unstructured.NestedInt64(o.Body(), path(s.SpecReplicas)...)
	return n
}

func (s *Scale) subresource() resource.Sub[*Object] {
	sub := resource.Scale(s.get, func(o *Object, replicas int32) {
		o.Edit(func(body map[string]any) {
			_ = unstructured.SetNestedField(body, int64(replicas), path(s.SpecReplicas)...) // validation refuses what is in its way
		})
	})
	sub.Lacks = s.lacks
	return sub
}

// lacks tells of an object that does not say how many replicas it is to have: none is not what it says.
func (s *Scale) lacks(o *Object) error {
	if _, ok, _ := unstructured.NestedInt64(o.Body(), path(s.SpecReplicas)...); ok {
		return nil
	}
	return apierrors.NewInternalError(fmt.Errorf("the spec replicas field %q does not exist", s.SpecReplicas))
}

func (s *Scale) get(o *Object) *autoscalingv1.Scale {
	body := o.Body()
	is, _, _ := unstructured.NestedInt64(body, path(s.StatusReplicas)...)
	selector := ""
	if s.LabelSelector != "" {
		selector, _, _ = unstructured.NestedString(body, path(s.LabelSelector)...)
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, Namespace: o.Namespace, UID: o.UID, ResourceVersion: o.ResourceVersion, CreationTimestamp: o.CreationTimestamp,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: int32(s.replicas(o))},
		Status: autoscalingv1.ScaleStatus{Replicas: int32(is), Selector: selector},
	}
}

// sameBody reports that two objects agree in all but their metadata.
func sameBody(a, b *Object) bool {
	if a.body != "" && a.body == b.body {
		return true
	}
	return reflect.DeepEqual(a.Body(), b.Body())
}
