package disruption

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/apps"
	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/api/policy"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// eventSource is upstream's name for who writes the events.
const eventSource = "controllermanager"

// selection is which pods budgets are about.
var selection = controller.NewSelection(policy.PodDisruptionBudgets, policy.BudgetSelector)

// New returns the disruption controller. The owners of pods are of any kind of the
// set that has a scale.
func New(kinds controller.Kinds) *controller.Controller {
	lookup := controller.NewLookup(kinds)
	return controller.New(controller.Spec[*policyv1.PodDisruptionBudget]{
		Name:    "disruption-controller",
		Source:  eventSource,
		For:     policy.PodDisruptionBudgets,
		Watches: []controller.Watch{selectedPods()},
		Reads:   []*resource.Def{apps.Deployments.Def, apps.ReplicaSets.Def, apps.StatefulSets.Def, core.ReplicationControllers.Def},
		Writes:  []controller.Permission{controller.UpdateStatus(policy.PodDisruptionBudgets.Def)},
		Rules:   []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*/scale"}, Verbs: []string{"get"}}},
		Every:   &controller.Every{Kinds: kinds, Of: scaled, Changed: failed},
		Setup: func(k *controller.Kit) controller.Reconciler[*policyv1.PodDisruptionBudget] {
			return &reconciler{
				k: k, budgets: controller.For(k, policy.PodDisruptionBudgets), pods: controller.For(k, core.Pods),
				scales: scales{kinds: lookup, t: k.Transport()},
			}
		},
	})
}

// selectedPods wakes the budgets of pods that come, go, or change in what budgets count.
func selectedPods() controller.Watch {
	w := selection.Selected(core.Pods.Def)
	w.Same = func(before, after resource.Object) bool {
		a, b := before.(*corev1.Pod), after.(*corev1.Pod)
		return a.UID == b.UID && core.PodReady(a) == core.PodReady(b) && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
			equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
	}
	return w
}

// failed are the budgets that could not be counted: the kind of an owner may be
// known now that was not.
func failed(k *controller.Kit) []string {
	var keys []string
	for _, b := range controller.For(k, policy.PodDisruptionBudgets).List("", nil) {
		if c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition); c != nil && c.Reason == policyv1.SyncFailedReason {
			keys = append(keys, cache.Key(b.Namespace, b.Name))
		}
	}
	return keys
}

type reconciler struct {
	k       *controller.Kit
	budgets controller.Client[*policyv1.PodDisruptionBudget]
	pods    controller.Client[*corev1.Pod]
	scales  scales
}

// Reconcile counts the pods of a budget. A look walks over the pods of its namespace, and each pod
// that changes asks for one. That what is allowed grows a little later harms nobody; that it shrinks
// is seen to by the evictions themselves.
func (r *reconciler) Reconcile(ctx context.Context, b *policyv1.PodDisruptionBudget) (controller.Next, error) {
	started := time.Now()
	c, err := r.count(b)
	if err != nil {
		return controller.Done, r.fail(ctx, b, err)
	}
	s, late, after := c.status(started)
	for _, p := range late {
		r.k.Events.Event(p, corev1.EventTypeWarning, "NotDeleted", "Pod was expected by PDB "+cache.Key(b.Namespace, b.Name)+" to be deleted but it wasn't")
	}
	next := controller.Done
	if after > 0 {
		next = controller.After(after)
	}
	next = next.Costly(time.Since(started))
	return next, r.store(ctx, b, s)
}

// count is what a budget counts: its pods, and how many there should be.
func (r *reconciler) count(b *policyv1.PodDisruptionBudget) (count, error) {
	sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		r.k.Events.Event(b, corev1.EventTypeWarning, "NoPods", "Failed to get pods: "+err.Error())
		return count{}, err
	}
	c := count{budget: b}
	if b.Spec.Selector != nil {
		c.pods = r.pods.List(b.Namespace, sel)
	}
	if len(c.pods) == 0 {
		r.k.Events.Event(b, corev1.EventTypeNormal, "NoPods", "No matching pods found")
	}
	if !byScale(&b.Spec) {
		return c, nil
	}
	scale, unmanaged, err := r.scales.of(c.pods)
	if err != nil {
		r.k.Events.Event(b, corev1.EventTypeWarning, "CalculateExpectedPodCountFailed", "Failed to calculate the number of expected pods: "+err.Error())
		return c, err
	}
	if unmanaged > 0 {
		r.k.Events.Event(b, corev1.EventTypeWarning, "UnmanagedPods", "Pods selected by this PodDisruptionBudget (selector: "+b.Spec.Selector.String()+
			") were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "+
			"To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.")
	}
	c.scale = scale
	return c, nil
}

// store writes a status, if it is another (PDB1: the write names the revision that
// was read).
func (r *reconciler) store(ctx context.Context, b *policyv1.PodDisruptionBudget, s policyv1.PodDisruptionBudgetStatus) error {
	if equality.Semantic.DeepEqual(b.Status, s) {
		return nil
	}
	b = b.DeepCopy()
	b.Status = s
	_, err := r.budgets.UpdateStatus(ctx, b)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// fail allows no disruptions of a budget that cannot be counted (PDB3), and says why.
// A change of what it was about is waited for.
func (r *reconciler) fail(ctx context.Context, b *policyv1.PodDisruptionBudget, why error) error {
	s := b.Status.DeepCopy()
	s.DisruptionsAllowed = 0
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, ObservedGeneration: s.ObservedGeneration,
		Reason: policyv1.SyncFailedReason, Message: why.Error(),
	})
	return r.store(ctx, b, *s)
}
