package write

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/cache"
	"github.com/kemudi/kemudi/internal/resource"
	"github.com/kemudi/kemudi/internal/store"
)

// Admission is asked about every write, twice: Mutate may change a.Object,
// Validate may not; both may refuse, and add warnings. Recheck is asked in place of both when
// something that their answers rest on has changed, but not the object.
type Admission interface {
	Mutate(ctx context.Context, a *admission.Attributes) error
	Validate(ctx context.Context, a *admission.Attributes) error
	Recheck(ctx context.Context, a *admission.Attributes) error
}

// NoAdmission lets everything pass as it is.
type NoAdmission struct{}

var _ Admission = NoAdmission{}

// Mutate changes nothing.
func (NoAdmission) Mutate(context.Context, *admission.Attributes) error { return nil }

// Validate refuses nothing.
func (NoAdmission) Validate(context.Context, *admission.Attributes) error { return nil }

// Recheck refuses nothing.
func (NoAdmission) Recheck(context.Context, *admission.Attributes) error { return nil }

// admit asks one half of admission about the attempt.
func (w *attempt) admit(ctx context.Context, ask func(context.Context, *admission.Attributes) error) error {
	if w.trusted {
		return nil
	}
	a := Attributes(w.c)
	a.Object, a.Old = w.obj, w.old()
	if w.final != nil {
		a.Object = w.final
	}
	a.Operation, a.Options = "UPDATE", &metav1.UpdateOptions{FieldManager: w.c.Manager}
	if w.item == nil {
		a.Operation, a.Options = "CREATE", &metav1.CreateOptions{FieldManager: w.c.Manager}
	}
	err := ask(ctx, a)
	for _, on := range a.Relied {
		rev, _ := read.ParseRevision(on.Object.GetResourceVersion()) // the cache's own
		cond := store.Cond{Key: on.Def.Key(on.Object.GetNamespace(), on.Object.GetName()), Rev: rev}
		if !slices.Contains(w.relied, cond) {
			w.relied = append(w.relied, cond)
		}
	}
	w.carried, w.after = append(w.carried, a.Carried...), append(w.after, a.After...)
	return err
}

// end runs what plugins have left for after the attempt (Attributes.After), the last first, now that its outcome
// is known. A nil attempt has nothing to run.
func (w *attempt) end() {
	if w == nil {
		return
	}
	for _, f := range slices.Backward(w.after) {
		f()
	}
	w.after = nil
}

// admitDelete asks both halves about a delete.
func (w *attempt) admitDelete(ctx context.Context, o *metav1.DeleteOptions) error {
	a := Attributes(w.c)
	a.Operation, a.Old, a.Options = "DELETE", w.old(), o
	err := w.p.Admit(ctx, a)
	w.after = append(w.after, a.After...)
	return err
}

// Attributes are what admission learns of every call.
func Attributes(c *call.Call) *admission.Attributes {
	return &admission.Attributes{
		Def: c.Resource.Def, GVK: c.Resource.GVK, Sub: c.SubName(), Namespace: c.Namespace, Name: c.Name, User: c.User, DryRun: c.DryRun, Warn: c.Warn, Audit: c.Audit,
	}
}

// AdmitBody asks both halves about the body that a named handler got.
func (p *Pipeline) AdmitBody(ctx context.Context, c *call.Call, body runtime.Object) error {
	a := Attributes(c)
	a.Operation, a.Object, a.Options = "CREATE", body, &metav1.CreateOptions{FieldManager: c.Manager}
	return p.Admit(ctx, a)
}

// Admit asks both halves of admission about what nothing happens to between them.
func (p *Pipeline) Admit(ctx context.Context, a *admission.Attributes) error {
	if err := p.o.Admission.Mutate(ctx, a); err != nil {
		return err
	}
	return p.o.Admission.Validate(ctx, a)
}

// Caches is what the server needs of package watchcache.
type Caches interface {
	read.Stored
	// Cache is the one cache of def's objects.
	Cache(def *resource.Def) *cache.Cache
	// Handoff gives the decoded form of a value of def that is about to be written,
	// so that it need not be decoded again. obj is handed over. at returns the Item
	// of the revision at which the value was written.
	Handoff(def *resource.Def, key string, value []byte, obj resource.Object) (at func(rev int64) *cache.Item)
}
