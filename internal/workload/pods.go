package workload

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// PodFromTemplate makes the pod that a workload (a def) asks for with a template.
func PodFromTemplate(t *corev1.PodTemplateSpec, owner resource.Object, def *resource.Def) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			GenerateName:    owner.GetName() + "-",
			Labels:          maps.Clone(t.Labels),
			Annotations:     maps.Clone(t.Annotations),
			Finalizers:      slices.Clone(t.Finalizers),
			OwnerReferences: []metav1.OwnerReference{*controller.ControllerRef(owner, def)},
		},
		Spec: *t.Spec.DeepCopy(),
	}
}

// PodActive says that the pod is neither finished nor being deleted.
func PodActive(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && !core.PodTerminal(p)
}

// PodsOn are the keys of the pods that are bound to a node.
func PodsOn(k *controller.Kit, node string) []string {
	var keys []string
	for _, p := range controller.For(k, core.Pods).ByIndex("spec.nodeName", node) {
		keys = append(keys, cache.Key(p.Namespace, p.Name))
	}
	return keys
}

// Pods creates and deletes the pods of workloads, many side by side, and tells of
// it in events, whose order is that of the pods.
type Pods struct {
	Client controller.Client[*corev1.Pod]
	Events client.EventSink
}

// Create makes n pods of owner, in growing batches, until the first error. It
// returns those that were made, and that error: none if the namespace is about
// to go, and owner with it.
func (p Pods) Create(ctx context.Context, owner resource.Object, n int, pod func(i int) *corev1.Pod) ([]*corev1.Pod, error) {
	made, errs := make([]*corev1.Pod, n), make([]error, n)
	_, err := SlowStartWide(n, func(i int) error {
		created, err := p.Client.Create(ctx, pod(i))
		if err == nil {
			made[i] = created
		}
		errs[i] = err
		return err
	})
	for i := range n {
		if made[i] != nil {
			p.Events.Event(owner, corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: "+made[i].Name)
		} else if errs[i] != nil && !Expected(errs[i]) && !NamespaceEnds(errs[i]) {
			p.Events.Event(owner, corev1.EventTypeWarning, "FailedCreate", "Error creating: "+errs[i].Error())
		}
	}
	if NamespaceEnds(err) {
		err = nil
	}
	return slices.DeleteFunc(made, func(pod *corev1.Pod) bool { return pod == nil }), err
}

// Delete deletes pods of owner, whatever has become of them since they were read.
// It returns those that are still there, and the first error.
func (p Pods) Delete(ctx context.Context, owner resource.Object, pods []*corev1.Pod) ([]*corev1.Pod, error) {
	errs := make([]error, len(pods))
	_, err := SideBySide(len(pods), func(i int) error {
		errs[i] = p.Client.DeleteByUID(ctx, pods[i])
		if Gone(errs[i]) {
			return nil
		}
		return errs[i]
	})
	var left []*corev1.Pod
	for i, pod := range pods {
		switch {
		case errs[i] == nil:
			p.Events.Event(owner, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted pod: "+pod.Name)
		case !Gone(errs[i]):
			p.Events.Event(owner, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+errs[i].Error())
			if left = append(left, pod); len(left) == 1 {
				err = errs[i] // one for all
			}
		}
	}
	return left, err
}

// Expected says that an error only means that somebody else was faster: it is
// tried again, and nothing that people should be told of.
func Expected(err error) bool { return apierrors.IsConflict(err) }

// NamespaceEnds says that an object could not be made because its namespace is about
// to go.
func NamespaceEnds(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// Gone says of a pod that could not be deleted by its UID that it is not there:
// another may have its name.
func Gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
