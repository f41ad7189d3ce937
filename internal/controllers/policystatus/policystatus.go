package policystatus

import (
	"context"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	api "github.com/kemudi/kemudi/internal/api/admissionregistration"
	"github.com/kemudi/kemudi/internal/controller"
)

// New returns the controller, which knows kinds as the server has them.
func New(kinds controller.Kinds) *controller.Controller {
	return controller.New(controller.Spec[*admissionregistrationv1.ValidatingAdmissionPolicy]{
		Name:    "validatingadmissionpolicy-status-controller",
		For:     api.ValidatingAdmissionPolicies,
		Writes:  []controller.Permission{controller.UpdateStatus(api.ValidatingAdmissionPolicies.Def)},
		Workers: 1, // there is little to do
		Setup: func(k *controller.Kit) controller.Reconciler[*admissionregistrationv1.ValidatingAdmissionPolicy] {
			return &reconciler{kinds, controller.For(k, api.ValidatingAdmissionPolicies)}
		},
	})
}

type reconciler struct {
	kinds    controller.Kinds
	policies controller.Client[*admissionregistrationv1.ValidatingAdmissionPolicy]
}

// Reconcile checks a policy that has changed.
func (r *reconciler) Reconcile(ctx context.Context, p *admissionregistrationv1.ValidatingAdmissionPolicy) (controller.Next, error) {
	if p.Status.ObservedGeneration >= p.Generation {
		return controller.Done, nil
	}
	defs, _ := r.kinds.Defs()
	p = p.DeepCopy()
	p.Status.ObservedGeneration = p.Generation
	p.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: check(p, defs)}
	_, err := r.policies.UpdateStatus(ctx, p)
	return controller.Done, err
}
