package statefulset

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// hashLabel is what revisions of StatefulSets carry the hash of their template in.
const hashLabel = "controller.kubernetes.io/hash"

var selection = controller.NewSelection(apps.StatefulSets, controller.Claiming(func(set *appsv1.StatefulSet) *metav1.LabelSelector {
	return set.Spec.Selector
}))

// Controller is the statefulset controller.
var Controller = controller.New(controller.Spec[*appsv1.StatefulSet]{
	Name: "statefulset-controller",
	For:  apps.StatefulSets,
	Watches: []controller.Watch{
		controller.Owned(core.Pods.Def, "StatefulSet"), named, claims,
		controller.Owned(apps.ControllerRevisions.Def, "StatefulSet"), selection.Adopters(apps.ControllerRevisions.Def),
	},
	Writes: []controller.Permission{
		controller.Create(core.Pods.Def), controller.Update(core.Pods.Def), controller.Patch(core.Pods.Def, ""), controller.Delete(core.Pods.Def),
		controller.Create(core.PersistentVolumeClaims.Def), controller.Update(core.PersistentVolumeClaims.Def),
		controller.Create(apps.ControllerRevisions.Def), controller.Update(apps.ControllerRevisions.Def),
		controller.Patch(apps.ControllerRevisions.Def, ""), controller.Delete(apps.ControllerRevisions.Def),
		controller.UpdateStatus(apps.StatefulSets.Def),
	},
	Setup: func(k *controller.Kit) controller.Reconciler[*appsv1.StatefulSet] {
		sets := controller.For(k, apps.StatefulSets)
		controller.OwnMetrics(k, newMetrics).sets.Store(&sets)
		return &reconciler{
			k: k, sets: sets, pods: controller.For(k, core.Pods), claims: controller.For(k, core.PersistentVolumeClaims),
			history: workload.History[*appsv1.StatefulSet]{
				Revisions: controller.For(k, apps.ControllerRevisions), Owners: sets, HashLabel: hashLabel,
			},
		}
	},
})

// named wakes a set for a pod that has the name of one of its own, whoever's it is:
// it may be adopted, or make room.
var named = controller.Watch{
	Def: core.Pods.Def,
	Keys: func(k *controller.Kit, obj resource.Object) []string {
		name, _, ok := splitName(obj.GetName())
		if !ok {
			return nil
		}
		if _, ok := controller.For(k, apps.StatefulSets).Get(obj.GetNamespace(), name); !ok {
			return nil
		}
		return []string{cache.Key(obj.GetNamespace(), name)}
	},
}

// claims wakes the set whose claim comes, goes or gets other owners.
var claims = controller.Watch{
	Def: core.PersistentVolumeClaims.Def,
	Keys: func(k *controller.Kit, obj resource.Object) []string {
		var keys []string
		names, templates := setsOfClaim(obj.GetName())
		for i, name := range names {
			set, ok := controller.For(k, apps.StatefulSets).Get(obj.GetNamespace(), name)
			if ok && slices.ContainsFunc(set.Spec.VolumeClaimTemplates, func(c corev1.PersistentVolumeClaim) bool { return c.Name == templates[i] }) {
				keys = append(keys, cache.Key(obj.GetNamespace(), name))
			}
		}
		return keys
	},
	Same: func(before, after resource.Object) bool {
		return before.GetDeletionTimestamp().Equal(after.GetDeletionTimestamp()) &&
			equality.Semantic.DeepEqual(before.GetOwnerReferences(), after.GetOwnerReferences())
	},
}

type reconciler struct {
	k       *controller.Kit
	sets    controller.Client[*appsv1.StatefulSet]
	pods    controller.Client[*corev1.Pod]
	claims  controller.Client[*corev1.PersistentVolumeClaim]
	history workload.History[*appsv1.StatefulSet]
}

// Reconcile moves a StatefulSet one step on: what it creates, changes and deletes
// wakes it for the next.
func (r *reconciler) Reconcile(ctx context.Context, set *appsv1.StatefulSet) (controller.Next, error) {
	sel, err := workload.Selector(set.Spec.Selector, &set.Spec.Template)
	if err != nil {
		r.k.Events.Event(set, corev1.EventTypeWarning, "InvalidSelector", err.Error())
		return controller.Done, nil
	}
	claimer := controller.Claimer[*corev1.Pod, *appsv1.StatefulSet]{
		Children: r.pods, Owners: r.sets,
		Open: func(p *corev1.Pod) bool { _, ok := numberOf(set, p.Name); return ok },
	}
	pods, err := claimer.Claim(ctx, set, sel)
	if err != nil {
		return controller.Done, err
	}
	v := newView(set, pods)
	v.now = time.Now()
	v.claim = func(name string) *corev1.PersistentVolumeClaim {
		claim, _ := r.claims.Get(set.Namespace, name)
		return claim
	}
	if set.DeletionTimestamp != nil { // its pods go with it, or stay
		v.current, v.update = set.Status.CurrentRevision, set.Status.UpdateRevision
		return controller.Done, r.report(ctx, v, set.Status.CollisionCount)
	}
	revisions, err := r.history.Sync(ctx, workload.Revised[*appsv1.StatefulSet]{
		Owner: set, Selector: sel, Template: &set.Spec.Template, Collisions: ptr.To(ptr.Deref(set.Status.CollisionCount, 0)),
	})
	if workload.NamespaceEnds(err) {
		return controller.Done, nil
	}
	if err != nil {
		return controller.Done, err
	}
	if err := v.revise(revisions); err != nil {
		return controller.Done, err
	}
	err = errors.Join(r.act(ctx, v, v.next()), r.report(ctx, v, revisions.Collisions))
	if err != nil {
		return controller.Done, err
	}
	if err := r.truncate(ctx, v, revisions); err != nil {
		return controller.Done, err
	}
	if wait, ok := workload.NextAvailable(pods, set.Spec.MinReadySeconds, v.now); ok {
		return controller.After(wait), nil
	}
	return controller.Done, nil
}

// revise notes the revisions: the one of the template as it is, and the one that
// the set has all of its pods from, or had before.
func (v *view) revise(revisions workload.Revisions) error {
	current := revisions.Present
	for _, rev := range revisions.Old {
		if rev.Name == v.set.Status.CurrentRevision {
			current = rev
		}
	}
	v.current, v.update = current.Name, revisions.Present.Name
	v.templates = map[string]*corev1.PodTemplateSpec{v.update: &v.set.Spec.Template}
	if v.current != v.update {
		t, err := workload.TemplateOf(current)
		if err != nil {
			return err
		}
		v.templates[v.current] = t
	}
	return nil
}

// truncate drops revisions beyond the limit of the history that neither the set nor
// a pod has. A limit below zero keeps all.
func (r *reconciler) truncate(ctx context.Context, v *view, revisions workload.Revisions) error {
	limit := ptr.Deref(v.set.Spec.RevisionHistoryLimit, -1)
	if limit < 0 {
		return nil
	}
	live := map[string]bool{v.current: true}
	for _, p := range v.pods {
		live[p.Labels[appsv1.StatefulSetRevisionLabel]] = true
	}
	return r.history.Truncate(ctx, revisions, limit, func(rev *appsv1.ControllerRevision) bool { return live[rev.Name] })
}

func (r *reconciler) report(ctx context.Context, v *view, collisions *int32) error {
	status := v.status(collisions)
	if equality.Semantic.DeepEqual(status, v.set.Status) {
		return nil
	}
	set := v.set.DeepCopy()
	set.Status = status
	if _, err := r.sets.UpdateStatus(ctx, set); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("update status: %w", err)
	}
	return nil
}
