package ephemeralvolume

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/core/claims"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
)

// Controller makes claims for pods.
var Controller = controller.New(controller.Spec[*corev1.Pod]{
	Name:    "ephemeral-volume-controller",
	Source:  "ephemeral_volume",
	For:     core.Pods,
	Watches: []controller.Watch{controller.Owned(core.PersistentVolumeClaims.Def, "Pod")},
	Writes:  []controller.Permission{controller.Create(core.PersistentVolumeClaims.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Pod] {
		return reconciler{k.Events, controller.For(k, core.PersistentVolumeClaims), controller.OwnMetrics(k, newMetrics)}
	},
})

type reconciler struct {
	events  client.EventSink
	claims  controller.Client[*corev1.PersistentVolumeClaim]
	metrics *metrics
}

// Reconcile makes the claims of a pod that are not there.
func (r reconciler) Reconcile(ctx context.Context, p *corev1.Pod) (controller.Next, error) {
	if p.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	var errs []error
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
			continue
		}
		if err := r.claim(ctx, p, v); err != nil {
			r.events.Event(p, corev1.EventTypeWarning, "FailedBinding", fmt.Sprintf("ephemeral volume %s: %v", v.Name, err))
			errs = append(errs, fmt.Errorf("pod %s, ephemeral volume %s: %w", p.Name, v.Name, err))
		}
	}
	return controller.Done, errors.Join(errs...)
}

// claim makes the claim of a volume unless it is there.
func (r reconciler) claim(ctx context.Context, p *corev1.Pod, v *corev1.Volume) error {
	name := claims.OfVolume(p, v)
	if c, ok := r.claims.Get(p.Namespace, name); ok {
		if !claims.MadeFor(c, p) {
			return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", c.Namespace, c.Name, p.Namespace, p.Name)
		}
		return nil
	}
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	_, err := r.claims.Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: name, Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: template.Spec,
	})
	r.metrics.created.Inc()
	if err != nil {
		r.metrics.failed.Inc()
		return fmt.Errorf("create PVC %s: %w", name, err)
	}
	return nil
}
