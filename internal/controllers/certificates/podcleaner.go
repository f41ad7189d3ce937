package certificates

import (
	"context"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"

	api "github.com/kemudi/kemudi/internal/api/certificates"
	"github.com/kemudi/kemudi/internal/controller"
)

// podRequestFor is how long a request for a pod's certificate stays, whatever became of it: its node
// has read the answer by then, or asks anew.
const podRequestFor = 15 * time.Minute

// PodCleaner deletes old requests for certificates of pods.
var PodCleaner = controller.New(controller.Spec[*certificatesv1.PodCertificateRequest]{
	Name:    "podcertificaterequest-cleaner-controller",
	For:     api.PodCertificateRequests,
	Writes:  []controller.Permission{controller.Delete(api.PodCertificateRequests.Def)},
	Workers: 1, // there is little to do
	Setup: func(k *controller.Kit) controller.Reconciler[*certificatesv1.PodCertificateRequest] {
		return &podCleaner{controller.For(k, api.PodCertificateRequests)}
	},
})

type podCleaner struct {
	requests controller.Client[*certificatesv1.PodCertificateRequest]
}

// Reconcile deletes a request when its time is over.
func (c *podCleaner) Reconcile(ctx context.Context, r *certificatesv1.PodCertificateRequest) (controller.Next, error) {
	if left := time.Until(r.CreationTimestamp.Add(podRequestFor)); left > 0 {
		return controller.After(left), nil
	}
	return controller.Done, c.requests.Delete(ctx, r)
}
