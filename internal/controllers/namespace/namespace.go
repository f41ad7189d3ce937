package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// Elsewhere deletes what other servers have in a namespace (aggregated APIs). It returns how many objects
// are left, by resource, and the group-versions of which that is not known.
type Elsewhere func(ctx context.Context, namespace string) (left map[schema.GroupResource]int, unknown []schema.GroupVersion, err error)

// New returns the namespace controller over all resources of the server: it
// empties those with namespaces. elsewhere may be nil: no other server has any.
func New(kinds controller.Kinds, elsewhere Elsewhere) *controller.Controller {
	return controller.New(controller.Spec[*corev1.Namespace]{
		Name:   "namespace-controller",
		For:    core.Namespaces,
		Writes: []controller.Permission{controller.UpdateStatus(core.Namespaces.Def), {Verb: "update", Def: core.Namespaces.Def, Sub: "finalize"}},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "deletecollection"},
		}},
		Every: &controller.Every{
			Kinds: kinds,
			Of: func(def *resource.Def) (controller.Watch, bool) {
				return controller.Watch{Def: def, Keys: terminating}, content(def)
			},
			Changed: allTerminating,
		},
		Setup: func(k *controller.Kit) controller.Reconciler[*corev1.Namespace] {
			return &reconciler{
				k: k, kinds: kinds, elsewhere: elsewhere,
				namespaces: controller.For(k, core.Namespaces), finalize: controller.Writer(k, core.Namespaces),
			}
		},
	})
}

// content says that objects of the resource are in namespaces.
func content(def *resource.Def) bool { return def.Namespaced && def.Stored() }

// allTerminating are the namespaces that are being deleted.
func allTerminating(k *controller.Kit) []string {
	var keys []string
	for _, ns := range controller.For(k, core.Namespaces).List("", nil) {
		if ns.DeletionTimestamp != nil {
			keys = append(keys, ns.Name)
		}
	}
	return keys
}

// terminating wakes an object's namespace if that is being deleted.
func terminating(k *controller.Kit, obj resource.Object) []string {
	ns, ok := controller.For(k, core.Namespaces).Get("", obj.GetNamespace())
	if !ok || ns.DeletionTimestamp == nil {
		return nil
	}
	return []string{ns.Name}
}

type reconciler struct {
	k          *controller.Kit
	kinds      controller.Kinds
	elsewhere  Elsewhere
	namespaces controller.Client[*corev1.Namespace]
	finalize   client.Client[*corev1.Namespace]
}

// pace is how far apart the looks at a namespace are that has so much left: each walks over all
// of the objects, may write the status, and is asked for by each object that goes.
func pace(left []remainder) (d time.Duration) {
	for _, c := range left {
		d += time.Duration(c.objects) * 100 * time.Microsecond
	}
	return d
}

// Reconcile deletes the objects that are left in a terminating namespace. Each
// deletion of an object wakes the namespace, so Reconcile never waits for one.
func (r *reconciler) Reconcile(ctx context.Context, ns *corev1.Namespace) (controller.Next, error) {
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return controller.Done, nil
	}
	contents := r.contents()
	if !r.k.Synced(contents) {
		return controller.Done, nil // it is woken when it is known what there is
	}
	var failed []string
	for _, def := range r.order(contents, ns.Name) {
		if err := r.empty(ctx, def, ns.Name); err != nil {
			failed = append(failed, err.Error())
		}
	}
	found := findings{left: r.left(contents, ns.Name)}
	next := controller.Done
	switch wait, late := graceLeft(ns, r.list(core.Pods.Def, ns.Name), time.Now()); {
	case wait > 0:
		next = controller.After(wait)
	case late:
		found.failed = append(found.failed, fmt.Sprintf("unexpected items still remain in namespace: %s for gvr: /v1, Resource=pods", ns.Name))
	}
	next = next.Cool(pace(found.left))
	if r.elsewhere != nil {
		if err := r.emptyElsewhere(ctx, ns.Name, &found); err != nil {
			failed = append(failed, err.Error())
		}
		if len(found.others)+len(found.unknown) > 0 {
			next = controller.After(lookElsewhere) // nobody tells what goes there
		}
	}
	found.failed = append(found.failed, failed...)
	reported, err := r.report(ctx, ns, &found)
	if err != nil {
		return next, err
	}
	if len(failed) > 0 {
		return next, fmt.Errorf("empty namespace: %s", strings.Join(failed, "; "))
	}
	if len(found.left)+len(found.others)+len(found.unknown) > 0 || reported {
		// The write of the conditions wakes the namespace once more. By then the caches show
		// every object that was created before admission knew that the namespace goes.
		return next, nil
	}
	ns, err = r.namespaces.Live(ctx, "", ns.Name)
	if err != nil {
		return controller.Done, err
	}
	ns = ns.DeepCopy()
	ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	_, err = r.finalize.UpdateSub(ctx, "finalize", ns)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return controller.Done, err
}

// graceLeft is how long the pods that are left may still take to end, counted from when the
// namespace was deleted. If that is over, late says that there are some which nothing holds but
// their node, which does not answer.
func graceLeft(ns *corev1.Namespace, pods []*cache.Item, now time.Time) (left time.Duration, late bool) {
	if len(pods) == 0 {
		return 0, false
	}
	var grace int64
	late = true
	for _, it := range pods {
		pod := it.Object.(*corev1.Pod)
		late = late && len(pod.Finalizers) == 0
		if !core.PodTerminal(pod) {
			grace = max(grace, ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 0))
		}
	}
	left = ns.DeletionTimestamp.Add(time.Duration(grace) * time.Second).Sub(now)
	return max(0, left), late
}

// order is what to delete now: pods as long as there are any, so that what they
// use (secrets, network policies) outlives them; then everything.
func (r *reconciler) order(contents []*resource.Def, ns string) []*resource.Def {
	if len(r.list(core.Pods.Def, ns)) > 0 {
		return []*resource.Def{core.Pods.Def}
	}
	return contents
}

// contents are the resources to empty now.
func (r *reconciler) contents() []*resource.Def {
	defs, _ := r.kinds.Defs()
	return slices.DeleteFunc(slices.Clone(defs), func(def *resource.Def) bool { return !content(def) })
}

// list is what a namespace has of a resource; nothing if that has gone meanwhile.
func (r *reconciler) list(def *resource.Def, ns string) []*cache.Item {
	if c := r.k.Transport().Cache(def, ""); c != nil {
		return c.List(ns, nil)
	}
	return nil
}

// empty deletes what is not being deleted already.
func (r *reconciler) empty(ctx context.Context, def *resource.Def, ns string) error {
	if !slices.ContainsFunc(r.list(def, ns), func(it *cache.Item) bool { return it.Object.GetDeletionTimestamp() == nil }) {
		return nil
	}
	background := metav1.DeletePropagationBackground
	_, err := r.k.Transport().Do(ctx, &client.Request{
		Verb: "deletecollection", Def: def, Namespace: ns, Delete: metav1.DeleteOptions{PropagationPolicy: &background},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", def, err)
	}
	return nil
}

// remainder is how many objects of a resource are left, and how many wait for a
// finalizer.
type remainder struct {
	def        *resource.Def
	objects    int
	finalizers map[string]int
}

func (r *reconciler) left(contents []*resource.Def, ns string) []remainder {
	var out []remainder
	for _, def := range contents {
		items := r.list(def, ns)
		if len(items) == 0 {
			continue
		}
		c := remainder{def: def, objects: len(items), finalizers: map[string]int{}}
		for _, it := range items {
			for _, f := range it.Object.GetFinalizers() {
				c.finalizers[f]++
			}
		}
		out = append(out, c)
	}
	return out
}

// report writes what is left, and why, as conditions, unless they say so already.
func (r *reconciler) report(ctx context.Context, ns *corev1.Namespace, found *findings) (wrote bool, _ error) {
	status := ns.Status.DeepCopy()
	status.Phase = corev1.NamespaceTerminating
	set(status, corev1.NamespaceDeletionDiscoveryFailure,
		failure("DiscoveryFailed", "Discovery failed for some groups, %d failing: unable to retrieve the complete list of server APIs: %s", found.unknown),
		finding{"ResourcesDiscovered", "All resources successfully discovered"})
	set(status, corev1.NamespaceDeletionGVParsingFailure, nil, finding{"ParsedGroupVersions", "All legacy kube types successfully parsed"})
	set(status, corev1.NamespaceDeletionContentFailure,
		failure("ContentDeletionFailed", "Failed to delete all resource types, %d remaining: %s", found.failed),
		finding{"ContentDeleted", "All content successfully deleted, may be waiting on finalization"})
	waiting, some := []string(nil), found.others
	finalizers := map[string]int{}
	for _, c := range found.left {
		// Clients know the core group, too, by a dot: "pods. has 2 resource instances".
		some = append(some, fmt.Sprintf("%s.%s has %d resource instances", c.def.Plural, c.def.Group, c.objects))
		for f, n := range c.finalizers {
			finalizers[f] += n
		}
	}
	for f, n := range finalizers {
		waiting = append(waiting, fmt.Sprintf("%s in %d resource instances", f, n))
	}
	slices.Sort(some)
	slices.Sort(waiting)
	set(status, corev1.NamespaceContentRemaining,
		remaining("SomeResourcesRemain", "Some resources are remaining: ", some),
		finding{"ContentRemoved", "All content successfully removed"})
	set(status, corev1.NamespaceFinalizersRemaining,
		remaining("SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: ", waiting),
		finding{"ContentHasNoFinalizers", "All content-preserving finalizers finished"})
	if equality.Semantic.DeepEqual(*status, ns.Status) {
		return false, nil
	}
	ns = ns.DeepCopy()
	ns.Status = *status
	_, err := r.namespaces.UpdateStatus(ctx, ns)
	return true, err
}

// finding is the reason and message of a condition.
type finding struct{ reason, message string }

func failure(reason, format string, errs []string) *finding {
	if len(errs) == 0 {
		return nil
	}
	return &finding{reason, fmt.Sprintf(format, len(errs), strings.Join(errs, ", "))}
}

func remaining(reason, prefix string, what []string) *finding {
	if len(what) == 0 {
		return nil
	}
	return &finding{reason, prefix + strings.Join(what, ", ")}
}

// set makes a condition True with the problem, or False with what is good.
func set(s *corev1.NamespaceStatus, kind corev1.NamespaceConditionType, problem *finding, good finding) {
	c := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: good.reason, Message: good.message}
	if problem != nil {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, problem.reason, problem.message
	}
	c.LastTransitionTime = metav1.Now().Rfc3339Copy()
	for i := range s.Conditions {
		has := &s.Conditions[i]
		if has.Type != kind {
			continue
		}
		if has.Status == c.Status {
			c.LastTransitionTime = has.LastTransitionTime
		}
		*has = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
