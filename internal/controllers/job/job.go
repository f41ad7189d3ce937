package job

import (
	"context"
	"errors"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/workload"
)

// Controller is the job controller.
var Controller = controller.New(controller.Spec[*batchv1.Job]{
	Name: "job-controller",
	For:  batch.Jobs,
	Watches: []controller.Watch{
		controller.Owned(core.Pods.Def, "Job"),
		controller.Adopters(core.Pods, batch.Jobs, selectorOf),
	},
	Writes: []controller.Permission{
		controller.Create(core.Pods.Def), controller.Delete(core.Pods.Def), controller.Patch(core.Pods.Def, ""),
		controller.UpdateStatus(batch.Jobs.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*batchv1.Job] {
		r := &reconciler{k: k, jobs: controller.For(k, batch.Jobs), pods: controller.For(k, core.Pods), metrics: controller.OwnMetrics(k, newMetrics)}
		r.workload = workload.Pods{Client: r.pods, Events: k.Events}
		r.mu.known = map[string]lastLook{}
		return r
	},
})

// selectorOf is what a job would adopt; nothing if it is over, or somebody else's.
func selectorOf(job *batchv1.Job) *metav1.LabelSelector {
	if foreign(job) || batch.JobFinished(job) != nil {
		return nil
	}
	return job.Spec.Selector
}

// foreign says that another controller takes care of the job.
func foreign(job *batchv1.Job) bool {
	return job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

type reconciler struct {
	k    *controller.Kit
	jobs controller.Client[*batchv1.Job]
	pods controller.Client[*corev1.Pod]
	// workload creates and deletes them.
	workload workload.Pods
	metrics  *metrics

	mu struct {
		sync.Mutex
		known map[string]lastLook // by the job's key
	}
}

// lastLook is what is remembered of a job between looks. Without it a job is right
// all the same.
type lastLook struct {
	uid  types.UID
	back backoff
}

// Reconcile brings a job on.
func (r *reconciler) Reconcile(ctx context.Context, job *batchv1.Job) (controller.Next, error) {
	key := cache.Key(job.Namespace, job.Name)
	switch {
	case batch.JobFinished(job) != nil:
		return controller.Done, r.Gone(ctx, key)
	case foreign(job):
		if _, known := r.recall(key, job.UID); !known {
			r.metrics.foreign.WithLabelValues(*job.Spec.ManagedBy).Inc()
			r.remember(key, lastLook{uid: job.UID})
		}
		return controller.Done, nil
	}
	began := time.Now()
	next, action, err := r.look(ctx, key, job)
	r.metrics.looked(job, began, action, err)
	return next, err
}

// look brings a job on, and says what that came to.
func (r *reconciler) look(ctx context.Context, key string, job *batchv1.Job) (next controller.Next, action string, err error) {
	v := &view{job: job, now: time.Now()}
	if m, ok := r.recall(key, job.UID); ok {
		v.back = &m.back
	}
	sel, err := workload.Selector(job.Spec.Selector, &job.Spec.Template)
	if err != nil {
		r.k.Events.Event(job, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		return controller.Done, lookWaits, nil
	}
	if err := caughtUp(ctx, r.pods.Cache, job); err != nil { // J4
		return controller.Done, lookWaits, err
	}
	claimer := controller.Claimer[*corev1.Pod, *batchv1.Job]{Children: r.pods, Owners: r.jobs, Finalizer: batchv1.JobTrackingFinalizer}
	if v.pods, err = claimer.Claim(ctx, job, sel); err != nil {
		return controller.Done, lookWaits, err
	}
	p := v.next()
	action = p.action()
	if err := r.do(ctx, v, &p); err != nil {
		return controller.Done, action, err
	}
	r.remember(key, lastLook{uid: job.UID, back: p.back})
	switch {
	case p.more:
		return controller.After(0), action, nil
	case p.after > 0:
		next = controller.After(p.after)
	}
	return next.Cool(pace(len(v.pods))), action, nil
}

// pace is how far apart the looks at a job with so many pods are: each costs a
// walk over all of them, and may write the status.
func pace(pods int) time.Duration { return time.Duration(pods) * time.Millisecond }

// Gone forgets a job.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.known, key)
	return nil
}

func (r *reconciler) recall(key string, uid types.UID) (lastLook, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.mu.known[key]
	return m, ok && m.uid == uid
}

func (r *reconciler) remember(key string, m lastLook) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.known[key] = m
}

// do carries out a plan. What goes wrong with single pods does not keep the rest
// of it from being done; the status says what has been.
func (r *reconciler) do(ctx context.Context, v *view, p *plan) error {
	made, createErr := r.create(ctx, v, p.create)
	p.status.Active -= int32(len(p.create) - made)
	gone, cancelErr := r.stop(ctx, v.job, p.cancel)
	left := int32(len(p.cancel) - gone)
	p.status.Active += left
	*p.status.Terminating -= left
	if err := r.store(ctx, v.job, p); err != nil {
		return errors.Join(createErr, cancelErr, err)
	}
	freeErr := r.free(ctx, v.job, p)
	return errors.Join(createErr, cancelErr, freeErr)
}

// create makes pods and returns how many could be made.
func (r *reconciler) create(ctx context.Context, v *view, pods []newPod) (int, error) {
	made, err := r.workload.Create(ctx, v.job, len(pods), func(i int) *corev1.Pod { return v.pod(pods[i]) })
	if len(pods) > 0 {
		r.metrics.made(v, len(pods), len(made))
	}
	return len(made), err
}

// stop frees and deletes pods, so that they do not count, and returns how many it could.
func (r *reconciler) stop(ctx context.Context, job *batchv1.Job, pods []*corev1.Pod) (int, error) {
	errs := make([]error, len(pods))
	_, _ = workload.SideBySide(len(pods), func(i int) error { // each failure is told of below
		_, errs[i] = release(ctx, r.pods, pods[i])
		return errs[i]
	})
	var freed []*corev1.Pod
	held := 0
	for i, pod := range pods {
		switch {
		case errs[i] == nil:
			freed = append(freed, pod)
		case apierrors.IsNotFound(errs[i]):
			errs[i] = nil
		default:
			held++
			if !workload.Expected(errs[i]) {
				r.k.Events.Event(job, corev1.EventTypeWarning, "FailedDelete", "Error deleting: "+errs[i].Error())
			}
		}
	}
	left, err := r.workload.Delete(ctx, job, freed)
	return len(pods) - held - len(left), errors.Join(append(errs, err)...)
}

// free takes the finalizer from pods that the stored status names, and deletes
// those of them that are to stop.
func (r *reconciler) free(ctx context.Context, job *batchv1.Job, p *plan) error {
	stops := map[*corev1.Pod]bool{}
	for _, pod := range p.stop {
		stops[pod] = true
	}
	_, stopErr := r.stop(ctx, job, p.stop)
	_, err := workload.SideBySide(len(p.free), func(i int) error {
		if stops[p.free[i]] {
			return nil
		}
		_, err := release(ctx, r.pods, p.free[i])
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	return errors.Join(stopErr, err)
}

// release takes the tracking finalizer from a pod and returns the pod as it is then.
func release(ctx context.Context, pods controller.Client[*corev1.Pod], pod *corev1.Pod) (*corev1.Pod, error) {
	if !tracked(pod) {
		return pod, nil
	}
	return pods.StrategicPatch(ctx, pod, "", map[string]any{
		"metadata": map[string]any{"$deleteFromPrimitiveList/finalizers": []any{batchv1.JobTrackingFinalizer}},
	})
}

// store writes the status, if it is another, and then tells of it.
func (r *reconciler) store(ctx context.Context, job *batchv1.Job, p *plan) error {
	if equality.Semantic.DeepEqual(p.status, job.Status) {
		return nil
	}
	now := job.DeepCopy()
	now.Status = p.status
	if _, err := r.jobs.UpdateStatus(ctx, now); err != nil {
		return err
	}
	r.metrics.stored(job, now)
	for action, n := range p.ruled {
		r.metrics.policy.WithLabelValues(string(action)).Add(float64(n))
	}
	for _, e := range p.events {
		r.k.Events.Event(job, e.kind, e.reason, e.message)
	}
	return nil
}
