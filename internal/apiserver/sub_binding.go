package apiserver

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// bind assigns a pod to a node (pods/binding).
func bind(ctx context.Context, s *Server, c *call, body runtime.Object) (runtime.Object, error) {
	b, ok := body.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewInternalError(fmt.Errorf("bind pod %s: got a %T", c.name, body))
	}
	if c.res.def.CreateOnly { // the resource bindings: the pod is named in the body
		c.res, c.name = s.storage(core.Pods.Def), b.Name
	}
	if err := c.fitName(b); err != nil {
		return nil, err
	}
	errs := resource.NewErrors()
	if core.ValidateBinding(b, errs); errs.Len() > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), c.name, errs.List())
	}
	if err := s.admitBody(ctx, c, b); err != nil {
		return nil, err
	}
	_, err := s.write(ctx, c, change{tracked: true, trusted: true, make: func(_ context.Context, old resource.Object) (resource.Object, error) {
		return bound(c, old.(*corev1.Pod), b)
	}})
	if err != nil {
		return nil, err
	}
	status := &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated}
	status.SetGroupVersionKind(statusGVK)
	return status, nil
}

// bound returns the pod as it is when the binding holds.
func bound(c *call, old *corev1.Pod, b *corev1.Binding) (resource.Object, error) {
	refuse := func(format string, args ...any) error { return conflict(c, fmt.Errorf(format, args...)) }
	switch {
	case b.UID != "" && b.UID != old.UID:
		return nil, conflict(c, uidMismatch(b.UID, old.UID))
	case b.ResourceVersion != "" && b.ResourceVersion != old.ResourceVersion:
		return nil, conflict(c, errModified)
	case old.DeletionTimestamp != nil:
		return nil, refuse("pod %s is being deleted, cannot be assigned to a host", old.Name)
	case old.Spec.NodeName != "":
		return nil, refuse("pod %v is already assigned to node %q", old.Name, old.Spec.NodeName)
	case len(old.Spec.SchedulingGates) > 0:
		return nil, refuse("pod %v has non-empty .spec.schedulingGates", old.Name)
	}
	pod := old.DeepCopy()
	pod.ResourceVersion = ""
	pod.Spec.NodeName = b.Target.Name
	pod.Status.NominatedNodeName = "" // it has a node now, that one or another
	if len(b.Annotations) > 0 && pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	maps.Copy(pod.Annotations, b.Annotations)
	setScheduled(pod)
	return pod, nil
}

// setScheduled puts the condition PodScheduled to true.
func setScheduled(pod *corev1.Pod) {
	want := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now().Rfc3339Copy()}
	for i := range pod.Status.Conditions {
		if have := &pod.Status.Conditions[i]; have.Type == want.Type {
			if have.Status != want.Status {
				want.ObservedGeneration = have.ObservedGeneration
				*have = want
			}
			return
		}
	}
	pod.Status.Conditions = append(pod.Status.Conditions, want)
}

// sameType reports whether obj is of the Go type that def stores.
func sameType(obj resource.Object, def *resource.Def) bool {
	return reflect.TypeOf(obj) == reflect.TypeOf(def.New())
}
