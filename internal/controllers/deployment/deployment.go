package deployment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/workload"
)

// Controller is the deployment controller.
var Controller = controller.New(controller.Spec[*appsv1.Deployment]{
	Name: "deployment-controller",
	For:  apps.Deployments,
	Watches: []controller.Watch{
		controller.Owned(apps.ReplicaSets.Def, "Deployment"),
		controller.Adopters(apps.ReplicaSets, apps.Deployments, func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector }),
		controller.Mapped(core.Pods, recreating),
	},
	Writes: []controller.Permission{
		controller.Update(apps.Deployments.Def), controller.UpdateStatus(apps.Deployments.Def),
		controller.Create(apps.ReplicaSets.Def), controller.Update(apps.ReplicaSets.Def),
		controller.Patch(apps.ReplicaSets.Def, ""), controller.Delete(apps.ReplicaSets.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*appsv1.Deployment] {
		return &reconciler{
			k: k, deployments: controller.For(k, apps.Deployments),
			sets: controller.For(k, apps.ReplicaSets), pods: controller.For(k, core.Pods),
		}
	},
})

type reconciler struct {
	k           *controller.Kit
	deployments controller.Client[*appsv1.Deployment]
	sets        controller.Client[*appsv1.ReplicaSet]
	pods        controller.Client[*corev1.Pod]
}

// recreating is the Deployment that waits for a pod to be gone: only strategy
// Recreate looks at pods.
func recreating(k *controller.Kit, pod *corev1.Pod) []string {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return nil
	}
	rs, ok := controller.For(k, apps.ReplicaSets).Get(pod.Namespace, ref.Name)
	if !ok {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil || owner.Kind != "Deployment" {
		return nil
	}
	d, ok := controller.For(k, apps.Deployments).Get(pod.Namespace, owner.Name)
	if !ok || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []string{cache.Key(d.Namespace, d.Name)}
}

// Reconcile moves a Deployment one step on: each step changes sets, and their
// changes wake it for the next.
func (r *reconciler) Reconcile(ctx context.Context, d *appsv1.Deployment) (controller.Next, error) {
	sel, err := workload.Selector(d.Spec.Selector, &d.Spec.Template)
	if err != nil {
		r.k.Events.Event(d, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		return controller.Done, nil
	}
	if sel.Empty() {
		r.k.Events.Event(d, corev1.EventTypeWarning, "SelectingAll", "This deployment is selecting all pods. A non-empty selector is required.")
		return controller.Done, nil
	}
	sets, err := controller.Claimer[*appsv1.ReplicaSet, *appsv1.Deployment]{Children: r.sets, Owners: r.deployments}.Claim(ctx, d, sel)
	if err != nil {
		return controller.Done, err
	}
	ro := newRollout(d, sets)
	if d.DeletionTimestamp != nil {
		return r.report(ctx, ro, newStatus(ro))
	}
	if d.Annotations[appsv1.DeprecatedRollbackTo] != "" && !d.Spec.Paused {
		return controller.Done, r.rollback(ctx, ro)
	}
	if next, stop, err := r.ensureNew(ctx, ro); stop || err != nil {
		return next, err
	}
	switch {
	case d.Spec.Paused || ro.scaling():
		err = r.scale(ctx, ro)
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		err = r.recreate(ctx, ro)
	default:
		err = r.resize(ctx, ro, ro.rollingStep())
	}
	if err != nil {
		return controller.Done, err
	}
	return r.finish(ctx, ro)
}

// finish reports, and drops old revisions when the rollout is complete.
func (r *reconciler) finish(ctx context.Context, ro *rollout) (controller.Next, error) {
	status := newStatus(ro)
	if complete(ro.d, &status) || ro.d.Spec.Paused {
		for _, rs := range ro.expired() {
			if err := r.sets.Delete(ctx, rs); err != nil && !apierrors.IsNotFound(err) {
				return controller.Done, fmt.Errorf("delete old replica set %s: %w", rs.Name, err)
			}
		}
	}
	return r.report(ctx, ro, status)
}

// ensureNew makes sure that the set of the present template exists (unless the
// Deployment is paused, is being scaled, or must first see old pods gone),
// carries the right revision, and that the Deployment does too. stop says that the Deployment itself
// was written and will come back.
func (r *reconciler) ensureNew(ctx context.Context, ro *rollout) (_ controller.Next, stop bool, _ error) {
	d := ro.d
	if ro.new == nil {
		if d.Spec.Paused || ro.scaling() || d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && !r.oldGone(ro) {
			return controller.Done, false, nil
		}
		return r.createNew(ctx, ro)
	}
	if rs := ro.refreshed(); rs != nil {
		rs, err := r.sets.Update(ctx, rs)
		if err != nil {
			return controller.Done, true, err
		}
		ro.new = rs
	}
	if rev := ro.new.Annotations[revisionAnnotation]; d.Annotations[revisionAnnotation] != rev {
		d = d.DeepCopy()
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[revisionAnnotation] = rev
		_, err := r.deployments.UpdateStatus(ctx, d) // which makes no new generation of it
		return controller.Done, true, err
	}
	return controller.Done, false, nil
}

func (r *reconciler) createNew(ctx context.Context, ro *rollout) (_ controller.Next, stop bool, _ error) {
	rs, err := ro.newSet()
	if err != nil {
		return controller.Done, true, err
	}
	name, size := rs.Name, *rs.Spec.Replicas
	rs, err = r.sets.Create(ctx, rs)
	switch {
	case apierrors.IsAlreadyExists(err):
		return controller.Done, true, r.collision(ctx, ro, name)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return controller.Done, true, nil
	case err != nil:
		message := fmt.Sprintf("Failed to create new replica set %q: %v", name, err)
		r.k.Events.Event(ro.d, corev1.EventTypeWarning, "ReplicaSetCreateError", message)
		reportErr := r.noteCreation(ctx, ro, corev1.ConditionFalse, "ReplicaSetCreateError", message)
		if reportErr != nil && !apierrors.IsConflict(reportErr) {
			return controller.Done, true, reportErr
		}
		return controller.Done, true, err
	}
	if size > 0 {
		r.k.Events.Event(ro.d, corev1.EventTypeNormal, "ScalingReplicaSet", fmt.Sprintf("Scaled up replica set %s from 0 to %d", name, size))
	}
	ro.new = rs
	return controller.Done, true, r.noteCreation(ctx, ro, corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", name))
}

// noteCreation reports how the making of the new set ended.
func (r *reconciler) noteCreation(ctx context.Context, ro *rollout, status corev1.ConditionStatus, reason, message string) error {
	s := newStatus(ro)
	if hasDeadline(ro.d) {
		setCondition(&s, appsv1.DeploymentCondition{Type: appsv1.DeploymentProgressing, Status: status, Reason: reason, Message: message})
	}
	_, err := r.writeStatus(ctx, ro.d, s)
	return err
}

// collision deals with a set that has the name already: another template with
// the same hash makes the next try use another one.
func (r *reconciler) collision(ctx context.Context, ro *rollout, name string) error {
	rs, err := r.sets.Live(ctx, ro.d.Namespace, name)
	if err != nil {
		return err
	}
	ref := metav1.GetControllerOfNoCopy(rs)
	if ref != nil && ref.UID == ro.d.UID && sameTemplate(&rs.Spec.Template, &ro.d.Spec.Template) {
		return apierrors.NewConflict(r.sets.Def.GroupResource(), name, fmt.Errorf("the cache does not show it yet"))
	}
	status := *ro.d.Status.DeepCopy()
	status.CollisionCount = ptr.To(ptr.Deref(status.CollisionCount, 0) + 1)
	_, err = r.writeStatus(ctx, ro.d, status)
	return err
}

// scale follows a changed number of replicas, and notes in every active set for
// which number it was sized.
func (r *reconciler) scale(ctx context.Context, ro *rollout) error {
	steps := ro.scaleStep()
	sized := map[*appsv1.ReplicaSet]bool{}
	for _, s := range steps {
		sized[s.rs] = true
	}
	for _, rs := range ro.all() {
		if *rs.Spec.Replicas > 0 && !sized[rs] {
			steps = append(steps, resize{rs, *rs.Spec.Replicas})
		}
	}
	return r.resize(ctx, ro, steps)
}

// recreate empties all old sets, waits until their pods are gone, and only then
// fills the new one.
func (r *reconciler) recreate(ctx context.Context, ro *rollout) error {
	var steps []resize
	for _, rs := range ro.old {
		if *rs.Spec.Replicas > 0 {
			steps = append(steps, resize{rs, 0})
		}
	}
	if len(steps) > 0 || !r.oldGone(ro) || ro.new == nil {
		return r.resize(ctx, ro, steps)
	}
	if *ro.new.Spec.Replicas != *ro.d.Spec.Replicas {
		steps = []resize{{ro.new, *ro.d.Spec.Replicas}}
	}
	return r.resize(ctx, ro, steps)
}

// oldGone says that no old set has, or may still make, a pod that may run: its
// controller must have seen that none is wanted.
func (r *reconciler) oldGone(ro *rollout) bool {
	for _, rs := range ro.old {
		if *rs.Spec.Replicas > 0 || rs.Status.Replicas > 0 || rs.Status.ObservedGeneration < rs.Generation {
			return false
		}
		for _, p := range r.pods.ByIndex(resource.IndexController, string(rs.UID)) {
			if !core.PodTerminal(p) {
				return false
			}
		}
	}
	return true
}

// resize writes new sizes; sets that have size and notes already are left alone.
func (r *reconciler) resize(ctx context.Context, ro *rollout, steps []resize) error {
	for _, s := range steps {
		rs := s.rs.DeepCopy()
		if rs.Annotations == nil {
			rs.Annotations = map[string]string{}
		}
		annotateSize(rs, ro.d)
		rs.Spec.Replicas = &s.to
		if equality.Semantic.DeepEqual(rs, s.rs) {
			continue
		}
		if _, err := r.sets.Update(ctx, rs); err != nil {
			return fmt.Errorf("scale replica set %s: %w", s.rs.Name, err)
		}
		if from := *s.rs.Spec.Replicas; from != s.to {
			way := "up"
			if s.to < from {
				way = "down"
			}
			r.k.Events.Event(ro.d, corev1.EventTypeNormal, "ScalingReplicaSet",
				fmt.Sprintf("Scaled %s replica set %s from %d to %d", way, s.rs.Name, from, s.to))
		}
	}
	return nil
}

// report writes the status with the rollout's progress, and comes back when the
// progress deadline may have passed.
func (r *reconciler) report(ctx context.Context, ro *rollout, status appsv1.DeploymentStatus) (controller.Next, error) {
	setProgress(ro, &status, time.Now())
	d, err := r.writeStatus(ctx, ro.d, status)
	if err != nil {
		return controller.Done, err
	}
	if wait, ok := untilDeadline(d, time.Now()); ok {
		return controller.After(wait), nil
	}
	return controller.Done, nil
}

func (r *reconciler) writeStatus(ctx context.Context, d *appsv1.Deployment, status appsv1.DeploymentStatus) (*appsv1.Deployment, error) {
	if equality.Semantic.DeepEqual(status, d.Status) {
		return d, nil
	}
	d = d.DeepCopy()
	d.Status = status
	d, err := r.deployments.UpdateStatus(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("update status: %w", err)
	}
	return d, nil
}

// rollback puts the template of an earlier revision back, as the legacy
// versions' spec.rollbackTo asks through an annotation.
func (r *reconciler) rollback(ctx context.Context, ro *rollout) error {
	d := ro.d.DeepCopy()
	wanted, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	from := ro.revision(wanted)
	switch {
	case err != nil || from == nil && wanted == 0:
		r.k.Events.Event(ro.d, corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
	case from == nil:
		r.k.Events.Event(ro.d, corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
	case sameTemplate(&from.Spec.Template, &d.Spec.Template):
		r.k.Events.Event(ro.d, corev1.EventTypeWarning, "DeploymentRollbackTemplateUnchanged",
			fmt.Sprintf("The rollback revision contains the same template as current deployment %q", d.Name))
	default:
		d.Spec.Template = *withoutHash(&from.Spec.Template).DeepCopy()
		d.Annotations = rolledBack(d.Annotations, from.Annotations)
		r.k.Events.Event(ro.d, corev1.EventTypeNormal, "DeploymentRollback",
			fmt.Sprintf("Rolled back deployment %q to revision %d", d.Name, revisionOf(from)))
	}
	_, err = r.deployments.Update(ctx, d)
	return err
}

// revision finds the set of a revision; 0 asks for the one before the last.
func (r *rollout) revision(n int64) *appsv1.ReplicaSet {
	if n == 0 {
		var last int64
		for _, rs := range r.all() {
			if rev := revisionOf(rs); rev > last {
				n, last = last, rev
			} else if rev > n {
				n = rev
			}
		}
	}
	for _, rs := range r.all() {
		if n != 0 && revisionOf(rs) == n {
			return rs
		}
	}
	return nil
}
