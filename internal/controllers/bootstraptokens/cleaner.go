package bootstraptokens

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/auth/authn"
	"github.com/kemudi/kemudi/internal/controller"
)

// Cleaner deletes tokens that have ended.
var Cleaner = controller.New(controller.Spec[*corev1.Secret]{
	Name:    "token-cleaner",
	For:     core.Secrets,
	Writes:  []controller.Permission{controller.Delete(core.Secrets.Def)},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Secret] {
		return &cleaner{secrets: controller.For(k, core.Secrets)}
	},
})

type cleaner struct {
	secrets controller.Client[*corev1.Secret]
}

// Reconcile deletes a token, or waits for its end.
func (c *cleaner) Reconcile(ctx context.Context, s *corev1.Secret) (controller.Next, error) {
	if s.Namespace != metav1.NamespaceSystem || s.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	t, ok := authn.ReadBootstrapToken(s)
	switch {
	case !ok || t.Ends.IsZero():
		return controller.Done, nil
	case t.Ended(time.Now()):
		return controller.Done, c.secrets.Delete(ctx, s)
	}
	return controller.After(time.Until(t.Ends)), nil
}
