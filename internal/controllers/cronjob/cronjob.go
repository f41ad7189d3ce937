package cronjob

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/workload"
)

// Controller is the cronjob controller.
var Controller = controller.New(controller.Spec[*batchv1.CronJob]{
	Name:    "cronjob-controller",
	For:     batch.CronJobs,
	Watches: []controller.Watch{controller.Owned(batch.Jobs.Def, "CronJob")},
	Writes: []controller.Permission{
		controller.Create(batch.Jobs.Def), controller.Delete(batch.Jobs.Def), controller.UpdateStatus(batch.CronJobs.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*batchv1.CronJob] {
		r := &reconciler{k: k, cronJobs: controller.For(k, batch.CronJobs), jobs: controller.For(k, batch.Jobs), metrics: controller.OwnMetrics(k, newMetrics)}
		r.mu.given = map[string]given{}
		return r
	},
})

type reconciler struct {
	k        *controller.Kit
	cronJobs controller.Client[*batchv1.CronJob]
	jobs     controller.Client[*batchv1.Job]
	metrics  *metrics
	mu       struct {
		sync.Mutex
		given map[string]given // by the CronJob's key
	}
}

// given are the runs of a CronJob up to a time, too many to be caught up with.
type given struct {
	uid types.UID
	up  time.Time
}

// Reconcile brings a CronJob on.
func (r *reconciler) Reconcile(ctx context.Context, cj *batchv1.CronJob) (controller.Next, error) {
	key := cache.Key(cj.Namespace, cj.Name)
	rev, err := strconv.ParseInt(cj.ResourceVersion, 10, 64)
	if err != nil {
		return controller.Done, fmt.Errorf("revision of the CronJob: %w", err)
	}
	if err := r.jobs.WaitRev(ctx, rev); err != nil { // a Job that the status names is not missing
		return controller.Done, fmt.Errorf("wait for the jobs of revision %d: %w", rev, err)
	}
	v := &view{cj: cj, jobs: r.jobs.ByIndex(resource.IndexController, string(cj.UID)), now: time.Now(), given: r.recall(key, cj.UID)}
	p := v.next()
	if !p.given.Equal(v.given) {
		r.remember(key, given{cj.UID, p.given})
		r.k.Logger.Warn("Cannot determine if job needs to be started. Too many missed start time (> 100). Set or decrease .spec.startingDeadlineSeconds or check clock skew.", "cronjob", key)
	}
	if err := r.do(ctx, v, &p); err != nil {
		return controller.Done, err
	}
	if p.after > 0 {
		return controller.After(p.after), nil
	}
	return controller.Done, nil
}

// Gone forgets a CronJob.
func (r *reconciler) Gone(_ context.Context, key string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.given, key)
	return nil
}

func (r *reconciler) recall(key string, uid types.UID) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g := r.mu.given[key]; g.uid == uid {
		return g.up
	}
	return time.Time{}
}

func (r *reconciler) remember(key string, g given) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.given[key] = g
}

// do carries out a plan.
func (r *reconciler) do(ctx context.Context, v *view, p *plan) error {
	for _, j := range p.remove {
		if err := r.remove(ctx, v.cj, j); err != nil {
			return err
		}
		p.status.Active = slices.DeleteFunc(p.status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == j.UID })
	}
	if p.create != nil {
		j, err := r.create(ctx, v.cj, p.create)
		if err != nil {
			return err
		}
		if j != nil {
			r.metrics.skew.Observe(j.CreationTimestamp.Sub(p.due).Seconds())
			p.activate(j, p.due)
		}
	}
	if !equality.Semantic.DeepEqual(p.status, v.cj.Status) {
		now := v.cj.DeepCopy()
		now.Status = p.status
		if _, err := r.cronJobs.UpdateStatus(ctx, now); err != nil {
			return err
		}
	}
	for _, n := range p.events {
		r.k.Events.Event(v.cj, n.kind, n.reason, n.message)
	}
	return nil
}

func (r *reconciler) remove(ctx context.Context, cj *batchv1.CronJob, j *batchv1.Job) error {
	err := r.jobs.DeleteWith(ctx, j, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     metav1.NewUIDPreconditions(string(j.UID)), // one that has ended does not go on, one that is replaced goes as it is
	})
	switch {
	case workload.Gone(err):
		return nil
	case err != nil:
		r.k.Events.Event(cj, corev1.EventTypeWarning, "FailedDelete", "Deleted job: "+err.Error())
		return err
	}
	r.k.Events.Event(cj, corev1.EventTypeNormal, "SuccessfulDelete", "Deleted job "+j.Name)
	return nil
}

// create makes a Job, unless there is one of that name: nil, if it is somebody else's.
func (r *reconciler) create(ctx context.Context, cj *batchv1.CronJob, j *batchv1.Job) (*batchv1.Job, error) {
	namespace, name := j.Namespace, j.Name
	made, err := r.jobs.Create(ctx, j)
	switch {
	case err == nil:
		r.k.Events.Event(cj, corev1.EventTypeNormal, "SuccessfulCreate", "Created job "+made.Name)
		return made, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil, nil // the CronJob goes with its namespace
	case !apierrors.IsAlreadyExists(err):
		r.k.Events.Event(cj, corev1.EventTypeWarning, "FailedCreate", "Error creating job: "+err.Error())
		return nil, err
	}
	there, err := r.jobs.Live(ctx, namespace, name)
	if err != nil || !metav1.IsControlledBy(there, cj) {
		return nil, err
	}
	return there, nil
}
