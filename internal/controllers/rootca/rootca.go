package rootca

import (
	"context"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

const (
	configMap  = "kube-root-ca.crt"
	annotation = "kubernetes.io/description"
	// description is put where there is none.
	description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// New returns the root CA publisher of a cluster with the CA bundle, in PEM.
func New(bundle string) *controller.Controller {
	return controller.New(controller.Spec[*corev1.Namespace]{
		Name: "root-ca-cert-publisher",
		For:  core.Namespaces,
		Watches: []controller.Watch{
			controller.Mapped(core.ConfigMaps, func(_ *controller.Kit, cm *corev1.ConfigMap) []string {
				if cm.Name != configMap {
					return nil
				}
				return []string{cm.Namespace}
			}),
		},
		Writes: []controller.Permission{controller.Create(core.ConfigMaps.Def), controller.Update(core.ConfigMaps.Def)},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Namespace] {
			return &reconciler{bundle: bundle, maps: controller.For(k, core.ConfigMaps), metrics: controller.OwnMetrics(k, newMapMetrics)}
		},
	})
}

type reconciler struct {
	bundle  string
	maps    controller.Client[*corev1.ConfigMap]
	metrics *mapMetrics
}

// Reconcile looks after the ConfigMap of a namespace that is to stay.
func (r *reconciler) Reconcile(ctx context.Context, ns *corev1.Namespace) (controller.Next, error) {
	if ns.Status.Phase != corev1.NamespaceActive || ns.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	began := time.Now()
	err := r.publish(ctx, ns)
	r.metrics.published(began, err)
	return controller.Done, err
}

// publish creates the ConfigMap, or puts its data right.
func (r *reconciler) publish(ctx context.Context, ns *corev1.Namespace) error {
	data := map[string]string{"ca.crt": r.bundle}
	has, ok := r.maps.Get(ns.Name, configMap)
	if !ok {
		_, err := r.maps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns.Name, Name: configMap,
				Annotations: map[string]string{annotation: description},
			},
			Data: data,
		})
		if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			err = nil
		}
		return err
	}
	if maps.Equal(has.Data, data) && has.Annotations[annotation] != "" {
		return nil
	}
	has = has.DeepCopy()
	has.Data = data
	if has.Annotations == nil {
		has.Annotations = map[string]string{}
	}
	has.Annotations[annotation] = description
	_, err := r.maps.Update(ctx, has)
	return err
}
