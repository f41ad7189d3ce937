package job

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/batch"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Orphans takes the finalizer from pods that nobody will count any more: their
// job is gone or over, or they have none. Its keys are pods. (In upstream this
// is a second queue of the job controller.)
var Orphans = controller.NewKeyed(controller.Keyed{
	Name: "job-orphan-controller",
	Watches: []controller.Watch{
		controller.Mapped(core.Pods, func(k *controller.Kit, p *corev1.Pod) []string {
			if !tracked(p) || !orphaned(controller.For(k, batch.Jobs), p) {
				return nil
			}
			return []string{cache.Key(p.Namespace, p.Name)}
		}),
		controller.Mapped(batch.Jobs, podsLeft),
	},
	Writes: []controller.Permission{controller.Patch(core.Pods.Def, "")},
	Setup: func(k *controller.Kit) func(ctx context.Context, key string) (controller.Next, error) {
		pods, jobs := controller.For(k, core.Pods), controller.For(k, batch.Jobs)
		return func(ctx context.Context, key string) (controller.Next, error) {
			namespace, name, _ := strings.Cut(key, "/")
			pod, ok := pods.Get(namespace, name)
			if !ok || !tracked(pod) {
				return controller.Done, nil
			}
			if err := caughtUp(ctx, jobs.Cache, pod); err != nil { // its job may be new
				return controller.Done, err
			}
			if !orphaned(jobs, pod) {
				return controller.Done, nil
			}
			_, err := release(ctx, pods, pod)
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return controller.Done, err
		}
	},
})

// podsLeft are the tracked pods of a job that is over or gone.
func podsLeft(k *controller.Kit, job *batchv1.Job) []string {
	jobs := controller.For(k, batch.Jobs)
	var keys []string
	for _, p := range controller.For(k, core.Pods).ByIndex(resource.IndexController, string(job.UID)) {
		if tracked(p) && orphaned(jobs, p) {
			keys = append(keys, cache.Key(p.Namespace, p.Name))
		}
	}
	return keys
}

// caughtUp waits until a cache shows all that happened before an object was written.
func caughtUp(ctx context.Context, c *cache.Cache, obj resource.Object) error {
	rev, err := strconv.ParseInt(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		return fmt.Errorf("revision of %s: %w", obj.GetName(), err)
	}
	if err := c.WaitRev(ctx, rev); err != nil {
		return fmt.Errorf("wait for revision %d: %w", rev, err)
	}
	return nil
}

// orphaned says that no job will count the pod. One that somebody else counts is not.
func orphaned(jobs controller.Client[*batchv1.Job], p *corev1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(p)
	if ref == nil {
		return true
	}
	if ref.Kind != "Job" || ref.APIVersion != batchv1.SchemeGroupVersion.String() {
		return false
	}
	job, ok := jobs.Get(p.Namespace, ref.Name)
	if !ok || job.UID != ref.UID {
		return true
	}
	return !foreign(job) && batch.JobFinished(job) != nil
}
