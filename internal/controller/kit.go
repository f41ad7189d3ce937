package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// Kit is what a running controller works with.
type Kit struct {
	Logger *slog.Logger
	Events client.EventSink

	c       *Controller
	t       client.Transport
	m       *keyMetrics
	metrics *Metrics // nil: none
	shared
}

// Transport is the controller's own access to the API, for what the typed
// clients do not cover. Writes through it are checked against Writes too (C5).
func (k *Kit) Transport() client.Transport { return guard{k} }

// Client reads a declared resource from the cache and writes it within the
// declared permissions.
type Client[T resource.Object] struct {
	client.Reader[T]
	api client.Client[T]
}

// For returns the client of a resource. The resource must be declared as an
// input (For, Watches or Reads).
func For[T resource.Object](k *Kit, r *resource.Resource[T]) Client[T] {
	if !slices.Contains(k.c.Reads, r.Def) {
		panic(fmt.Sprintf("controller %s: %s is not declared as an input", k.c.Name, r))
	}
	return Client[T]{Reader: client.Cached(k.t, r, ""), api: client.For(k.Transport(), r)}
}

// Writer writes a resource that the controller does not read.
func Writer[T resource.Object](k *Kit, r *resource.Resource[T]) client.Client[T] {
	return client.For(k.Transport(), r)
}

// Live reads the newest state of an object, past the cache: for the rare
// decision that must not rest on an old view (adoption).
func (c Client[T]) Live(ctx context.Context, namespace, name string) (T, error) {
	return c.api.Get(ctx, namespace, name)
}

// Create stores a new object, which is handed over.
func (c Client[T]) Create(ctx context.Context, obj T) (T, error) { return c.api.Create(ctx, obj) }

// Update replaces the object that obj was copied from; it fails with a conflict
// if that has changed since (C6). obj is handed over.
func (c Client[T]) Update(ctx context.Context, obj T) (T, error) { return c.api.Update(ctx, obj) }

// UpdateStatus replaces the status likewise.
func (c Client[T]) UpdateStatus(ctx context.Context, obj T) (T, error) {
	return c.api.UpdateStatus(ctx, obj)
}

// MergePatch applies a JSON merge patch, given as a Go value, to the object or
// a subresource of it, provided that it is still the same object (its UID).
func (c Client[T]) MergePatch(ctx context.Context, obj T, sub string, patch map[string]any) (T, error) {
	return c.patch(ctx, obj, sub, types.MergePatchType, patch)
}

// StrategicPatch is MergePatch with Kubernetes' own rules for lists.
func (c Client[T]) StrategicPatch(ctx context.Context, obj T, sub string, patch map[string]any) (T, error) {
	return c.patch(ctx, obj, sub, types.StrategicMergePatchType, patch)
}

func (c Client[T]) patch(ctx context.Context, obj T, sub string, kind types.PatchType, patch map[string]any) (T, error) {
	data, err := withUID(obj.GetUID(), patch)
	if err != nil {
		return obj, err
	}
	return c.api.Patch(ctx, obj.GetNamespace(), obj.GetName(), sub, client.Patch{Type: kind, Data: data})
}

// Delete deletes obj if it is still as it was read (C6).
func (c Client[T]) Delete(ctx context.Context, obj T) error {
	return c.DeleteWith(ctx, obj, metav1.DeleteOptions{})
}

// DeleteByUID deletes obj whatever has become of it since it was read, where its
// state decides nothing: a conflict says that it is gone and another has its name.
func (c Client[T]) DeleteByUID(ctx context.Context, obj T) error {
	uid := obj.GetUID()
	return c.api.Delete(ctx, obj.GetNamespace(), obj.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

// DeleteWith is Delete with options. Those with preconditions keep them: the UID at least.
func (c Client[T]) DeleteWith(ctx context.Context, obj T, o metav1.DeleteOptions) error {
	if o.Preconditions == nil {
		uid, rv := obj.GetUID(), obj.GetResourceVersion()
		o.Preconditions = &metav1.Preconditions{UID: &uid, ResourceVersion: &rv}
	}
	return c.api.Delete(ctx, obj.GetNamespace(), obj.GetName(), o)
}

// Synced says that the caches of resources show their state. One that has left
// its set has no cache.
func (k *Kit) Synced(defs []*resource.Def) bool {
	for _, def := range defs {
		c := k.t.Cache(def, "")
		if c == nil {
			continue
		}
		select {
		case <-c.Synced():
		default:
			return false
		}
	}
	return true
}

// guard is the transport that refuses undeclared writes (C5), requires
// revisions (C6) and notes what was written for the barrier (C3).
type guard struct{ k *Kit }

var _ client.Transport = guard{}

func (g guard) Cache(def *resource.Def, scope string) *cache.Cache { return g.k.t.Cache(def, scope) }

func (g guard) Hold(def *resource.Def, scope string) (*cache.Cache, func()) {
	return g.k.t.Hold(def, scope)
}

func (g guard) List(ctx context.Context, r *client.Request) (client.List, error) {
	return g.k.t.List(ctx, r)
}

func (g guard) Do(ctx context.Context, r *client.Request) (runtime.Object, error) {
	if r.Verb == "get" {
		return g.k.t.Do(ctx, r)
	}
	if err := g.k.c.mayWrite(r); err != nil {
		return nil, err
	}
	if !carriesRevision(r) {
		return nil, fmt.Errorf("controller %s: %s of %s %s carries no revision", g.k.c.Name, r.Verb, r.Def, r.Name)
	}
	obj, err := g.k.t.Do(ctx, r)
	if err == nil {
		noteWrite(ctx, g.k, r.Def, obj)
	}
	return obj, err
}

// carriesRevision says that an update names the revision it was decided at, and a
// delete that or the object itself. What a subresource's own body (Scale) stands for has one too.
func carriesRevision(r *client.Request) bool {
	switch r.Verb {
	case "update":
		obj, ok := r.Object.(metav1.Object)
		return !ok || obj.GetResourceVersion() != ""
	case "delete":
		p := r.Delete.Preconditions
		return p != nil && p.UID != nil
	}
	return true
}

func (c *Controller) mayWrite(r *client.Request) error {
	if slices.Contains(c.Writes, Permission{r.Verb, r.Def, r.Sub}) {
		return nil
	}
	for _, rule := range c.Rules { // a controller with wide rules, or one that writes kinds which are known at run time only
		meant := slices.Contains(rule.Resources, "*") || r.Sub != "" && slices.Contains(rule.Resources, "*/"+r.Sub) ||
			r.Sub == "" && slices.Contains(rule.APIGroups, r.Def.Group) && slices.Contains(rule.Resources, r.Def.Plural)
		if meant && (slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Verbs, r.Verb)) {
			return nil
		}
	}
	what := r.Def.String()
	if r.Sub != "" {
		what += "/" + r.Sub
	}
	return fmt.Errorf("controller %s: %s of %s is not declared in Writes", c.Name, r.Verb, what)
}

// written is what one reconcile wrote: the highest revision per feed.
type written struct {
	mu struct {
		sync.Mutex
		revs map[*cache.Progress]int64
	}
}

type writtenKey struct{}

// noteWrite remembers the revision of a write of a cached resource.
func noteWrite(ctx context.Context, k *Kit, def *resource.Def, answer runtime.Object) {
	w, _ := ctx.Value(writtenKey{}).(*written)
	if w == nil || answer == nil || !k.c.reads(def) {
		return
	}
	acc, err := meta.Accessor(answer)
	if err != nil {
		return
	}
	rev, err := strconv.ParseInt(acc.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	c := k.t.Cache(def, "")
	if c == nil { // the kind has gone meanwhile
		return
	}
	p := c.Progress
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.revs == nil {
		w.mu.revs = map[*cache.Progress]int64{}
	}
	w.mu.revs[p] = max(w.mu.revs[p], rev)
}
