// Package serviceaccount gives every namespace its "default" ServiceAccount.
package serviceaccount

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/controller"
)

// Controller is the serviceaccount controller.
var Controller = controller.New(controller.Spec[*corev1.Namespace]{
	Name: "service-account-controller",
	For:  core.Namespaces,
	Watches: []controller.Watch{
		controller.Mapped(core.ServiceAccounts, func(_ *controller.Kit, sa *corev1.ServiceAccount) []string {
			if sa.Name != "default" {
				return nil
			}
			return []string{sa.Namespace}
		}),
	},
	Writes: []controller.Permission{controller.Create(core.ServiceAccounts.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Namespace] {
		return &reconciler{controller.For(k, core.ServiceAccounts)}
	},
})

type reconciler struct {
	accounts controller.Client[*corev1.ServiceAccount]
}

// Reconcile creates the account if the namespace is to stay.
func (r *reconciler) Reconcile(ctx context.Context, ns *corev1.Namespace) (controller.Next, error) {
	if ns.Status.Phase != corev1.NamespaceActive || ns.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	if _, ok := r.accounts.Get(ns.Name, "default"); ok {
		return controller.Done, nil
	}
	_, err := r.accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}})
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return controller.Done, nil
	}
	return controller.Done, err
}
