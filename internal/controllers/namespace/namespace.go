// Package namespace empties a namespace that is being deleted, pods first, and
// then lets it go.
package namespace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kemudi/kemudi/internal/api/core"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
)

// New returns the namespace controller. defs are all resources of the server;
// those with namespaces are emptied.
func New(defs []*resource.Def) *controller.Controller {
	s := controller.Spec[*corev1.Namespace]{
		Name:   "namespace-controller",
		For:    core.Namespaces,
		Writes: []controller.Grant{controller.UpdateStatus(core.Namespaces.Def), {Verb: "update", Def: core.Namespaces.Def, Sub: "finalize"}},
	}
	var contents []*resource.Def
	for _, def := range defs {
		if !def.Namespaced || def.CreateOnly {
			continue
		}
		contents = append(contents, def)
		s.Watches = append(s.Watches, controller.Watch{Def: def, Keys: terminating})
		s.Writes = append(s.Writes, controller.Grant{Verb: "deletecollection", Def: def})
	}
	s.Setup = func(k *controller.Kit) controller.Reconciler[*corev1.Namespace] {
		return &reconciler{
			k: k, contents: contents,
			namespaces: controller.For(k, core.Namespaces), finalize: controller.Writer(k, core.Namespaces),
		}
	}
	return controller.New(s)
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
	contents   []*resource.Def
	namespaces controller.Client[*corev1.Namespace]
	finalize   client.Client[*corev1.Namespace]
}

// Reconcile deletes what is left in a terminating namespace. It is woken by
// every object that goes, so it never waits.
func (r *reconciler) Reconcile(ctx context.Context, ns *corev1.Namespace) (controller.Next, error) {
	if ns.DeletionTimestamp == nil || !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return controller.Done, nil
	}
	var failed []string
	for _, def := range r.order(ns.Name) {
		if err := r.empty(ctx, def, ns.Name); err != nil {
			failed = append(failed, err.Error())
		}
	}
	left := r.left(ns.Name)
	reported, err := r.report(ctx, ns, left, failed)
	if err != nil {
		return controller.Done, err
	}
	if len(failed) > 0 {
		return controller.Done, fmt.Errorf("empty namespace: %s", strings.Join(failed, "; "))
	}
	if len(left) > 0 || reported {
		// What was reported wakes the namespace once more. By then the caches show
		// all that was created before everybody knew that it is going.
		return controller.Done, nil
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

// order is what to delete now: pods as long as there are any, so that what they
// use (secrets, network policies) outlives them; then everything.
func (r *reconciler) order(ns string) []*resource.Def {
	if len(r.k.Transport().Cache(core.Pods.Def, "").List(ns, nil)) > 0 {
		return []*resource.Def{core.Pods.Def}
	}
	return r.contents
}

// empty deletes what is not being deleted already.
func (r *reconciler) empty(ctx context.Context, def *resource.Def, ns string) error {
	if !slices.ContainsFunc(r.k.Transport().Cache(def, "").List(ns, nil), func(it *cache.Item) bool { return it.Object.GetDeletionTimestamp() == nil }) {
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

// content is how many objects of a resource are left, and how many wait for a
// finalizer.
type content struct {
	def        *resource.Def
	objects    int
	finalizers map[string]int
}

func (r *reconciler) left(ns string) []content {
	var out []content
	for _, def := range r.contents {
		items := r.k.Transport().Cache(def, "").List(ns, nil)
		if len(items) == 0 {
			continue
		}
		c := content{def: def, objects: len(items), finalizers: map[string]int{}}
		for _, it := range items {
			for _, f := range it.Object.GetFinalizers() {
				c.finalizers[f]++
			}
		}
		out = append(out, c)
	}
	return out
}

// report writes what is left, and why, as conditions, if that is news.
func (r *reconciler) report(ctx context.Context, ns *corev1.Namespace, left []content, failed []string) (wrote bool, _ error) {
	status := ns.Status.DeepCopy()
	status.Phase = corev1.NamespaceTerminating
	set(status, corev1.NamespaceDeletionDiscoveryFailure, nil, finding{"ResourcesDiscovered", "All resources successfully discovered"})
	set(status, corev1.NamespaceDeletionGVParsingFailure, nil, finding{"ParsedGroupVersions", "All legacy kube types successfully parsed"})
	set(status, corev1.NamespaceDeletionContentFailure,
		failure("ContentDeletionFailed", "Failed to delete all resource types, %d remaining: %s", failed),
		finding{"ContentDeleted", "All content successfully deleted, may be waiting on finalization"})
	var some, waiting []string
	finalizers := map[string]int{}
	for _, c := range left {
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
