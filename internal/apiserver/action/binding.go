package action

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/resource"
)

// bind assigns a pod to a node (pods/binding).
func (a *Actions) bind(ctx context.Context, q *Request) (runtime.Object, error) {
	b, err := bodyOf[*corev1.Binding](q)
	if err != nil {
		return nil, err
	}
	if !q.Def.Stored() { // the resource bindings: the pod is named in the body
		q.Name = b.Name
	}
	if err := q.API.Fit(b); err != nil {
		return nil, err
	}
	errs := resource.NewErrors()
	if core.ValidateBinding(b, errs); errs.Len() > 0 {
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), q.Name, errs.List())
	}
	if err := q.API.Admit(ctx, b); err != nil {
		return nil, err
	}
	ch := Change{Def: core.Pods.Def, Name: q.Name, Own: true, Make: func(old resource.Object) (resource.Object, error) {
		return bound(old.(*corev1.Pod), b)
	}}
	if b.UID != "" {
		ch.If.UID = &b.UID
	}
	if b.ResourceVersion != "" {
		ch.If.ResourceVersion = &b.ResourceVersion
	}
	if _, err := q.API.Write(ctx, ch); err != nil {
		return nil, err
	}
	return done(), nil
}

// bound returns the pod as it is when the binding holds.
func bound(old *corev1.Pod, b *corev1.Binding) (resource.Object, error) {
	refuse := func(format string, args ...any) error {
		return apierrors.NewConflict(corev1.Resource("pods/binding"), old.Name, fmt.Errorf(format, args...))
	}
	switch {
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
	if len(b.Labels) > 0 && pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, b.Labels)
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
