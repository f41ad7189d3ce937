package controller

import (
	"context"
	"log/slog"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/client"
	"github.com/kemudi/kemudi/internal/resource"
)

// Spec declares a controller of one kind of object.
type Spec[T resource.Object] struct {
	Name    string                // as upstream names its service account: "replicaset-controller"
	Source  string                // of its events, where that is not the name
	For     *resource.Resource[T] // the objects that are reconciled; their changes wake their own keys
	Watches []Watch               // further inputs whose changes wake keys of For
	Every   *Every                // inputs that come and go; nil: none
	Reads   []*resource.Def       // cached inputs that wake nothing
	Writes  []Permission          // all that may be written
	Rules   []rbacv1.PolicyRule   // what it needs beyond (the CSR signer: to sign)
	Workers int                   // keys reconciled at once; default 4

	// Setup is called once per Run, before the first reconcile.
	Setup func(k *Kit) Reconciler[T]
}

// Reconciler moves one object towards what it should be.
type Reconciler[T resource.Object] interface {
	// Reconcile is called with the cached object, which is read-only. It is
	// called again after every change of an input, after an error (with growing
	// waits) and when Next asks for it.
	Reconcile(ctx context.Context, obj T) (Next, error)
}

// Goner is a Reconciler that also wants to act when an object is gone.
type Goner interface {
	// Gone is called with the key of an object that does not exist (any more).
	Gone(ctx context.Context, key string) error
}

// Next says when a key is to be looked at again without a change of its inputs,
// and how long it is let cool down before, whatever changes.
type Next struct {
	after, cooldown time.Duration
	behind          bool
}

// Done waits for the next change.
var Done = Next{}

// After looks again in d at the latest.
func After(d time.Duration) Next { return Next{after: max(d, time.Nanosecond)} }

// Behind has the key, when its time has come, let those go before that have changed (C11): for
// what is looked at again and again, of many keys, by calls that take long.
func (n Next) Behind() Next {
	n.behind = true
	return n
}

// What a key that costs much is held to.
const (
	cheap    = 500 * time.Microsecond // what takes no longer does not count
	coolsFor = 19                     // times as long as it took: it takes a twentieth of a processor
	longest  = time.Second            // cooldown
)

// Costly says how long it took to find out what is to be done, without the writing. An
// object with thousands of dependents, of which one after another changes, is then looked at
// once for many changes (C10); one with few is never held back.
func (n Next) Costly(took time.Duration) Next {
	if took <= cheap {
		return n
	}
	return n.Cool(coolsFor * took)
}

// Cool leaves the key alone for d, but for no longer than a second, whatever changes (C10): for
// what is known to be cheaper when many changes are looked at together.
func (n Next) Cool(d time.Duration) Next {
	n.cooldown = min(d, longest)
	return n
}

// Watch is an input whose changes wake keys of the Spec's For resource.
type Watch struct {
	Def *resource.Def
	// Keys returns the keys to wake for an object that was added, changed or
	// deleted; of a change it is called with the object before and after. It must
	// be quick: the watches of all controllers wait for it.
	Keys func(k *Kit, obj resource.Object) []string
	// Same says that a change is nothing to this controller, and wakes nobody;
	// nil: every change counts. For inputs that change often and matter little.
	Same func(before, after resource.Object) bool
	// SkipNew says that objects that are new wake nobody, those from before the
	// controller ran included: for inputs of which only changes and ends matter.
	SkipNew bool
	// Behind says that keys which this input wakes wait behind keys whose own objects have changed
	// (C11): for inputs of which one change wakes many keys, and reconciles take long.
	Behind bool
	// Selection, if set, is kept up to date while this is watched, for Keys to ask.
	Selection *Selection
}

// Owned wakes the controlling owner of kind ownerKind in the object's namespace.
func Owned(def *resource.Def, ownerKind string) Watch {
	return Watch{Def: def, Keys: func(_ *Kit, obj resource.Object) []string {
		for _, ref := range obj.GetOwnerReferences() {
			if ref.Controller != nil && *ref.Controller && ref.Kind == ownerKind {
				return []string{cache.Key(obj.GetNamespace(), ref.Name)}
			}
		}
		return nil
	}}
}

// Mapped wakes the keys that keys returns.
func Mapped[T resource.Object](r *resource.Resource[T], keys func(k *Kit, obj T) []string) Watch {
	return Watch{Def: r.Def, Keys: func(k *Kit, obj resource.Object) []string { return keys(k, obj.(T)) }}
}

// Permission is one kind of write that a controller may make.
type Permission struct {
	Verb string // create, update, patch, delete, deletecollection
	Def  *resource.Def
	Sub  string
}

// Create permits creating objects.
func Create(def *resource.Def) Permission { return Permission{"create", def, ""} }

// Update permits replacing objects.
func Update(def *resource.Def) Permission { return Permission{"update", def, ""} }

// UpdateStatus permits writing the status of objects.
func UpdateStatus(def *resource.Def) Permission { return Permission{"update", def, "status"} }

// Patch permits patching objects, or a subresource of them if sub is not empty.
func Patch(def *resource.Def, sub string) Permission { return Permission{"patch", def, sub} }

// Delete permits deleting objects.
func Delete(def *resource.Def) Permission { return Permission{"delete", def, ""} }

// Keyed declares a controller whose keys are not those of one kind of object
// (the garbage collector's are objects of every kind).
type Keyed struct {
	Name    string
	Source  string // of its events, where that is not the name
	Watches []Watch
	Every   *Every // inputs that come and go; nil: none
	Reads   []*resource.Def
	Writes  []Permission
	Rules   []rbacv1.PolicyRule // what it needs beyond (the garbage collector: everything)
	Workers int
	Setup   func(k *Kit) func(ctx context.Context, key string) (Next, error)
}

// Custom declares a controller that has no keys at all.
type Custom struct {
	Name   string
	Reads  []*resource.Def
	Writes []Permission
	Rules  []rbacv1.PolicyRule // what it needs beyond
	Run    func(ctx context.Context, k *Kit) error
}

// Controller is a declared controller, the same for every kind.
type Controller struct {
	Name   string
	Source string          // of its events
	Reads  []*resource.Def // For, Watches and Reads together, without repetition
	Writes []Permission
	Rules  []rbacv1.PolicyRule
	// Workers is how many keys are reconciled at once; 0: the default, 4.
	Workers int

	every *Every
	run   func(ctx context.Context, k *Kit) error
}

// Env is what controllers need from outside.
type Env struct {
	// As returns the transport of the service account of that name in kube-system.
	As func(name string) client.Transport
	// Recorder writes events for a component; nil: no events are written.
	Recorder   func(component string) client.EventSink
	Logger     *slog.Logger
	Metrics    *Metrics   // nil: none
	Manager    string     // upstream's name of the program that the controllers are of, for metrics; empty: it is not told
	Leadership Leadership // nil: always leading
}

// Leadership decides which of several processes runs the controllers.
type Leadership interface {
	// Lead calls run each time this process leads, with a context that ends
	// before another process may lead (C9), until ctx ends.
	Lead(ctx context.Context, run func(ctx context.Context) error) error
}
