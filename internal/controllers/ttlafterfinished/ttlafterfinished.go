package ttlafterfinished

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/controller"
)

// Controller is the TTL controller of finished jobs.
var Controller = controller.New(controller.Spec[*batchv1.Job]{
	Name:   "ttl-after-finished-controller",
	For:    batch.Jobs,
	Writes: []controller.Permission{controller.Delete(batch.Jobs.Def)},
	Setup: func(k *controller.Kit) controller.Reconciler[*batchv1.Job] {
		return reconciler{controller.For(k, batch.Jobs), controller.OwnMetrics(k, newMetrics)}
	},
})

type reconciler struct {
	jobs    controller.Client[*batchv1.Job]
	metrics *metrics
}

// Reconcile deletes a job whose time is up. Who has changed that time meanwhile
// is not overrun: the deletion names the revision that was read.
func (r reconciler) Reconcile(ctx context.Context, job *batchv1.Job) (controller.Next, error) {
	over := batch.JobFinished(job)
	if over == nil || job.Spec.TTLSecondsAfterFinished == nil || job.DeletionTimestamp != nil {
		return controller.Done, nil
	}
	ttl := time.Duration(*job.Spec.TTLSecondsAfterFinished) * time.Second
	up := over.LastTransitionTime.Add(ttl)
	if left := time.Until(up); left > 0 {
		return controller.After(left), nil
	}
	err := r.jobs.DeleteWith(ctx, job, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)})
	switch {
	case err == nil:
		r.metrics.late.Observe(time.Since(up).Seconds())
	case apierrors.IsNotFound(err):
		err = nil
	}
	return controller.Done, err
}
