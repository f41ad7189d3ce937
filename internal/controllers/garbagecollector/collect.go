package garbagecollector

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/controller"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/workload"
)

// collector is one run of the garbage collector.
type collector struct {
	*graph
	k *controller.Kit
	t client.Transport

	mu struct {
		sync.Mutex
		absent map[place]absence
		last   *census // nil: nobody asked lately
	}
}

// place is where an object of a UID was looked for.
type place struct {
	node
	uid types.UID
}

// absence is what is known of an owner that is not where a reference says.
type absence struct {
	elsewhere bool // in another namespace
}

// maxAbsent is how many owners are remembered as gone. The pods of one large set
// then cost one search.
const maxAbsent = 500

// look decides about one object: finish its own deletion if it waits for its
// dependents, or delete it if none of its owners is left.
func (c *collector) look(ctx context.Context, key string) (controller.Next, error) {
	c.forgetCensus()
	n, ok := c.parse(key)
	if !ok {
		return controller.Done, nil
	}
	it := n.get(c.t)
	if it == nil {
		return controller.Done, nil
	}
	obj := it.Object
	if obj.GetDeletionTimestamp() != nil {
		switch {
		case !c.k.Synced(c.kinds.Defs()): // dependents may not be seen yet; it is woken when they are
		case slices.Contains(obj.GetFinalizers(), metav1.FinalizerOrphanDependents):
			return controller.Done, c.orphan(ctx, n, obj)
		case slices.Contains(obj.GetFinalizers(), metav1.FinalizerDeleteDependents):
			return c.foreground(ctx, n, obj)
		}
		return controller.Done, nil
	}
	if len(obj.GetOwnerReferences()) == 0 {
		return controller.Done, nil
	}
	return controller.Done, c.judge(ctx, n, obj)
}

// owners sorts the references of an object.
type owners struct {
	solid    []metav1.OwnerReference // the owner is there
	dangling []metav1.OwnerReference // the owner is gone
	waiting  []metav1.OwnerReference // the owner is being deleted in the foreground and blocked by this object
}

// judge deletes an object without a solid owner, or drops the references to
// owners that are gone or going while another one stays.
func (c *collector) judge(ctx context.Context, n node, obj resource.Object) error {
	o, err := c.classify(ctx, obj)
	if err != nil {
		return err
	}
	switch {
	case len(o.solid) > 0:
		return c.dropRefs(ctx, n, obj, append(o.dangling, o.waiting...))
	case len(o.waiting) > 0 && c.mustWait(obj):
		return c.delete(ctx, n, obj, metav1.DeletePropagationForeground)
	case len(o.waiting) > 0 || len(o.dangling) > 0:
		return c.delete(ctx, n, obj, metav1.DeletePropagationBackground)
	}
	return nil
}

func (c *collector) classify(ctx context.Context, obj resource.Object) (o owners, _ error) {
	for _, ref := range obj.GetOwnerReferences() {
		owner, there, err := c.find(ctx, obj, ref)
		switch {
		case err != nil:
			return o, err
		case !there:
			o.dangling = append(o.dangling, ref)
		case owner != nil && owner.GetDeletionTimestamp() != nil && slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents):
			o.waiting = append(o.waiting, ref)
		default:
			o.solid = append(o.solid, ref)
		}
	}
	return o, nil
}

// find looks for an owner. One that the cache does not show is asked for once
// more from the API, because deleting cannot be undone. An owner of a kind that
// is not known here counts as there.
func (c *collector) find(ctx context.Context, obj resource.Object, ref metav1.OwnerReference) (_ resource.Object, there bool, _ error) {
	n, ok := c.owner(obj.GetNamespace(), ref)
	if !ok {
		return nil, true, nil
	}
	if n.def.Namespaced && obj.GetNamespace() == "" {
		c.reportNamespace(obj, ref)
		return nil, true, nil
	}
	if it := n.get(c.t); it != nil && it.Object.GetUID() == ref.UID {
		return it.Object, true, nil
	}
	at := place{n, ref.UID}
	known, ok := c.known(at)
	if !ok {
		owner, err := c.live(ctx, n, obj.GetNamespace(), ref.Name)
		if err != nil {
			return nil, false, fmt.Errorf("get owner %s %s: %w", ref.Kind, ref.Name, err)
		}
		if owner != nil && owner.GetUID() == ref.UID {
			return owner, true, nil
		}
		known = c.remember(at, obj)
	}
	if known.elsewhere {
		c.reportNamespace(obj, ref)
	}
	return nil, false, nil
}

// live reads an owner past the cache; nil: there is none.
func (c *collector) live(ctx context.Context, n node, namespace, name string) (resource.Object, error) {
	if !n.def.Namespaced {
		namespace = ""
	}
	obj, err := c.t.Do(ctx, &client.Request{Verb: "get", Def: n.def, Namespace: namespace, Name: name})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return obj.(resource.Object), nil
}

func (c *collector) known(at place) (absence, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.mu.absent[at]
	return a, ok
}

// remember notes that the owner that dependent names is not at a place. It will not
// be again: an object never comes back under its UID.
func (c *collector) remember(at place, dependent resource.Object) absence {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := absence{elsewhere: at.def.Namespaced && c.censusLocked(at.def, dependent).outside(dependent.GetNamespace(), at.uid)}
	if c.mu.absent == nil || len(c.mu.absent) >= maxAbsent {
		c.mu.absent = map[place]absence{}
	}
	c.mu.absent[at] = a
	return a
}

// reportNamespace tells people that a reference names an owner that is not in
// the object's namespace.
func (c *collector) reportNamespace(obj resource.Object, ref metav1.OwnerReference) {
	namespace := obj.GetNamespace()
	c.k.Events.Event(obj, corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
		fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q", ref.APIVersion, ref.Kind, namespace, ref.Name, ref.UID, namespace))
}

// mustWait says that an object is to be there until its dependents are gone. One
// of a circle is not: it must not wait for dependents that wait for it.
func (c *collector) mustWait(obj resource.Object) bool {
	deps := c.dependents(c.t, obj)
	for _, dep := range deps {
		it := dep.get(c.t)
		if it != nil && it.Object.GetDeletionTimestamp() != nil && slices.Contains(it.Object.GetFinalizers(), metav1.FinalizerDeleteDependents) {
			return false
		}
	}
	return len(deps) > 0
}

// foreground lets an object that is being deleted go when no dependent that blocks it is left. Each
// of them is looked at for itself meanwhile, and wakes its owner when it goes.
func (c *collector) foreground(ctx context.Context, n node, obj resource.Object) (controller.Next, error) {
	began := time.Now()
	for _, dep := range c.dependents(c.t, obj) {
		if it := dep.get(c.t); it != nil && blocks(it.Object, obj) {
			return controller.Done.Costly(time.Since(began)), nil // it has many, and each wakes it
		}
	}
	return controller.Done, c.dropFinalizer(ctx, n, obj, metav1.FinalizerDeleteDependents)
}

// blocks says that an object must be gone before its owner may go.
func blocks(dependent, owner resource.Object) bool {
	return slices.ContainsFunc(dependent.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.UID == owner.GetUID() && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion
	})
}

// orphan makes the dependents of an object forget it, many side by side, and then lets it go.
func (c *collector) orphan(ctx context.Context, n node, obj resource.Object) error {
	deps := c.dependents(c.t, obj)
	_, err := workload.SideBySide(len(deps), func(i int) error {
		if it := deps[i].get(c.t); it != nil {
			return c.dropRefs(ctx, deps[i], it.Object, []metav1.OwnerReference{{UID: obj.GetUID()}})
		}
		return nil
	})
	if err != nil {
		return err
	}
	return c.dropFinalizer(ctx, n, obj, metav1.FinalizerOrphanDependents)
}

func (c *collector) delete(ctx context.Context, n node, obj resource.Object, policy metav1.DeletionPropagation) error {
	// An object keeps the policy that it was marked with before.
	for _, f := range obj.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents:
			policy = metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			policy = metav1.DeletePropagationForeground
		}
	}
	uid, rv := obj.GetUID(), obj.GetResourceVersion()
	_, err := c.t.Do(ctx, &client.Request{
		Verb: "delete", Def: n.def, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Delete: metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}, PropagationPolicy: &policy},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// dropRefs removes the references to the owners with the UIDs of refs.
func (c *collector) dropRefs(ctx context.Context, n node, obj resource.Object, refs []metav1.OwnerReference) error {
	if len(refs) == 0 {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(has metav1.OwnerReference) bool {
		return slices.ContainsFunc(refs, func(gone metav1.OwnerReference) bool { return gone.UID == has.UID })
	})
	return c.patch(ctx, n, obj, map[string]any{"ownerReferences": kept})
}

func (c *collector) dropFinalizer(ctx context.Context, n node, obj resource.Object, name string) error {
	kept := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name })
	return c.patch(ctx, n, obj, map[string]any{"finalizers": kept})
}

// patch changes metadata if the object is still as it was read.
func (c *collector) patch(ctx context.Context, n node, obj resource.Object, metadata map[string]any) error {
	metadata["uid"], metadata["resourceVersion"] = obj.GetUID(), obj.GetResourceVersion()
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	_, err = c.t.Do(ctx, &client.Request{
		Verb: "patch", Def: n.def, Namespace: obj.GetNamespace(), Name: obj.GetName(), Patch: data, PatchType: types.MergePatchType,
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
