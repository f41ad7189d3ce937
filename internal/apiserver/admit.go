package apiserver

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kemudi/kemudi/internal/admission"
	"github.com/kemudi/kemudi/internal/apiserver/call"
	"github.com/kemudi/kemudi/internal/apiserver/read"
	"github.com/kemudi/kemudi/internal/store"
)

// Admission is asked about every write, twice: Mutate may change a.Object,
// Validate may not; both may refuse, and add warnings.
type Admission interface {
	Mutate(ctx context.Context, a *Attributes) error
	Validate(ctx context.Context, a *Attributes) error
}

// Attributes are a write as admission sees it.
type Attributes = admission.Attributes

type noAdmission struct{}

func (noAdmission) Mutate(context.Context, *Attributes) error   { return nil }
func (noAdmission) Validate(context.Context, *Attributes) error { return nil }

// admit asks one half of admission about the attempt.
func (w *attempt) admit(ctx context.Context, ask func(context.Context, *Attributes) error) error {
	if w.trusted {
		return nil
	}
	a := attributesFor(w.c)
	a.Object, a.Old = w.obj, w.old()
	a.Operation, a.Options = "UPDATE", &metav1.UpdateOptions{FieldManager: w.c.Manager}
	if w.item == nil {
		a.Operation, a.Options = "CREATE", &metav1.CreateOptions{FieldManager: w.c.Manager}
	}
	err := ask(ctx, a)
	for _, on := range a.Relied {
		rev, _ := read.ParseRevision(on.Object.GetResourceVersion()) // the cache's own
		w.relied = append(w.relied, store.Cond{Key: on.Def.Key(on.Object.GetNamespace(), on.Object.GetName()), Rev: rev})
	}
	return err
}

// admitAgain asks admission anew when what it relied on has changed. The object
// is as the plugins left it: they are to find nothing more to change.
func (w *attempt) admitAgain(ctx context.Context, changed *errRelied) error {
	if err := w.c.Resource.Cache.WaitRev(ctx, changed.rev); err != nil { // the caches advance together
		return err
	}
	w.relied = nil
	if err := w.admit(ctx, w.s.o.Admission.Mutate); err != nil {
		return err
	}
	if err := w.validate(); err != nil {
		return err
	}
	return w.admit(ctx, w.s.o.Admission.Validate)
}

// admitDelete asks both halves about a delete.
func (w *attempt) admitDelete(ctx context.Context, o *metav1.DeleteOptions) error {
	a := attributesFor(w.c)
	a.Operation, a.Old, a.Options = "DELETE", w.old(), o
	return w.s.admitWhole(ctx, a)
}

// attributesFor is what admission learns of every call.
func attributesFor(c *call.Call) *Attributes {
	return &Attributes{
		Def: c.Resource.Def, Sub: c.SubName(), Namespace: c.Namespace, Name: c.Name, User: c.User, DryRun: c.DryRun, Warn: c.Warn,
	}
}

// admitBody asks both halves about the body that a named handler got.
func (s *Server) admitBody(ctx context.Context, c *call.Call, body runtime.Object) error {
	a := attributesFor(c)
	a.Operation, a.Object, a.Options = "CREATE", body, &metav1.CreateOptions{FieldManager: c.Manager}
	return s.admitWhole(ctx, a)
}

// admitWhole asks both halves of admission about what nothing happens to between them.
func (s *Server) admitWhole(ctx context.Context, a *Attributes) error {
	if err := s.o.Admission.Mutate(ctx, a); err != nil {
		return err
	}
	return s.o.Admission.Validate(ctx, a)
}
